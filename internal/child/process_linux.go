package child

import "syscall"

// attributes lets a process run as that account, and end with this one by the signal last.
func attributes(as *Account, last syscall.Signal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: last}
	if as != nil {
		a.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return a
}
