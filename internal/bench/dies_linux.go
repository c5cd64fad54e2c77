// Ends servers with this process, even if it is killed.

package main

import "syscall"

func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
