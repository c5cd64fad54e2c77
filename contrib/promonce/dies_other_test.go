//go:build !linux

package promonce_test

import "syscall"

// diesWithParent cannot end Prometheus with this process if it is killed.
func diesWithParent() *syscall.SysProcAttr { return nil }
