//go:build !unix

package redistest

import "syscall"

// os.Process does not support these signals here, so Pause fails the test.
const (
	signalStop     = syscall.Signal(-1)
	signalContinue = syscall.Signal(-1)
)
