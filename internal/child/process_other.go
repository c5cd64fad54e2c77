//go:build !linux

package child

import "syscall"

// attributes changes nothing. As root, a server then fails with its own message.
func attributes(*Account, syscall.Signal) *syscall.SysProcAttr { return nil }

// awaitStopped relies on the kernel to stop the process before it runs again.
func awaitStopped(int) error { return nil }
