package pgtest

import "syscall"

// attributes lets a process run as that account and end with this one: SIGQUIT is the server's immediate shutdown,
// which ends its own processes and removes its shared memory.
func attributes(as *account) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if as != nil {
		a.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return a
}
