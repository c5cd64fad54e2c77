//go:build !unix

package redistest

import "syscall"

// Signals that os.Process refuses here: a server cannot be paused, and the
// test that tries it fails.
const (
	signalStop     = syscall.Signal(-1)
	signalContinue = syscall.Signal(-1)
)
