package promonce_test

import "syscall"

// diesWithParent ends Prometheus with this process, even if it is killed.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
