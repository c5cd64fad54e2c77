//go:build !linux

package pgtest

import "syscall"

// attributes changes nothing. As root, PostgreSQL then fails with its own message.
func attributes(*account) *syscall.SysProcAttr { return nil }
