//go:build !linux

package pgtest

import "syscall"

// attributes leaves a process as it is. One that is root cannot run the server here, which says so itself.
func attributes(*account) *syscall.SysProcAttr { return nil }
