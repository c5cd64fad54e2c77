package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"
)

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when the process stands still: a signal has been sent,
// not yet obeyed, when kill(2) returns.
func awaitStopped(pid int) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		// "pid (name) state ...", and the name may hold anything.
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && bytes.HasPrefix(stat[i:], []byte(") T ")) {
			return nil
		}
	}
	return fmt.Errorf("process %d has not stopped within %v", pid, patience)
}
