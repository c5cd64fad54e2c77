//go:build !linux

package redistest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

// awaitStopped relies on the kernel to stop the process before it runs again.
func awaitStopped(int) error { return nil }
