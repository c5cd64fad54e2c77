package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when every thread of the process has stopped, which may be after kill(2) returns.
func awaitStopped(pid int) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stopped, err := isStopped(pid)
		if stopped || err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d has not stopped within %v", pid, patience)
}

func isStopped(pid int) (bool, error) {
	threads := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(threads)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		stat, err := os.ReadFile(filepath.Join(threads, e.Name(), "stat"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return false, nil // the thread has just ended: check again
		}
		if err != nil {
			return false, err
		}
		// The format is "pid (name) state ...". The name may contain any byte.
		i := bytes.LastIndexByte(stat, ')')
		if i < 0 || !bytes.HasPrefix(stat[i:], []byte(") T ")) {
			return false, nil
		}
	}
	return true, nil
}
