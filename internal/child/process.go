// Package child runs the processes of servers for tests: as an account that is not root, on a free port, and never longer
// than the process that has started them.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Patience is how long a start or a stop may take.
const Patience = time.Minute

// Process is a child process. A goroutine waits for its end.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed when the process has ended
}

// Start runs cmd as that account. The process gets the signal last when the thread ends that has started it
// (PR_SET_PDEATHSIG of Linux), so a goroutine keeps that thread until the process has ended.
func Start(cmd *exec.Cmd, as *Account, last syscall.Signal) (*Process, error) {
	p := &Process{Cmd: cmd, Done: make(chan struct{})}
	cmd.SysProcAttr = attributes(as, last)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log and in cmd.ProcessState
			close(p.Done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// End sends a signal, and returns when the process has ended. It kills one that does not end in time.
func (p *Process) End(s os.Signal) error {
	if err := p.Cmd.Process.Signal(s); errors.Is(err, os.ErrProcessDone) {
		<-p.Done
		return nil
	}
	select {
	case <-p.Done:
		return nil
	case <-time.After(Patience):
		_ = p.Cmd.Process.Kill()
		<-p.Done
		return fmt.Errorf("process %d had to be killed: it did not end within %v after %v", p.Cmd.Process.Pid, Patience, s)
	}
}

// Pause stops the process with SIGSTOP. On Linux it returns when every thread has stopped.
func (p *Process) Pause() error {
	if err := p.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p.Cmd.Process.Pid)
}

// Resume continues a paused process with SIGCONT. It has no effect on one that runs or has ended.
func (p *Process) Resume() error {
	if err := p.Cmd.Process.Signal(syscall.SIGCONT); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
