package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// attributes lets a process run as that account, and end with this one by the signal last.
func attributes(as *Account, last syscall.Signal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: last}
	if as != nil {
		a.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return a
}

// awaitStopped returns when every thread of the process has stopped, which may be after kill(2) returns.
func awaitStopped(pid int) error {
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		tasks := fmt.Sprintf("/proc/%d/task", pid)
		threads, err := os.ReadDir(tasks)
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		stopped := 0
		for _, thread := range threads {
			if stat, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "stat")); err == nil && bytes.Contains(stat, []byte(") T ")) {
				stopped++
			}
		}
		if stopped == len(threads) {
			return nil
		}
	}
	return fmt.Errorf("process %d has not stopped within %v", pid, Patience)
}
