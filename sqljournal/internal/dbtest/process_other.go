//go:build !linux

package dbtest

import "syscall"

// attributes leaves a process as it is. A test binary that is root cannot run the server here, which says so itself.
func attributes(*account) *syscall.SysProcAttr { return nil }
