package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// patience is how long a start or a stop may take.
const patience = 30 * time.Second

// process is a child process. A goroutine waits for its end.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// startProcess runs cmd. The process ends with the thread that starts it (PR_SET_PDEATHSIG of Linux), so a goroutine
// keeps that thread until the process has ended.
func startProcess(cmd *exec.Cmd, as *account) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = attributes(as)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// stop sends a signal, and returns when the process has ended. It kills one that does not end in time.
func (p *process) stop(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); errors.Is(err, os.ErrProcessDone) {
		<-p.done
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("process %d had to be killed: it did not end within %v after %v", p.cmd.Process.Pid, patience, s)
	}
}
