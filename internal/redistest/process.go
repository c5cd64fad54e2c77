package redistest

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
)

// process is a child process that is waited for from its start on.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone
	err  error         // how it ended; set before done is closed
}

// startProcess runs cmd, whose files are the caller's to close.
//
// The kernel takes "the parent died" to mean the thread that started the child
// (PR_SET_PDEATHSIG of Linux), and the runtime ends a thread whose goroutine
// returns locked to it. So the goroutine that starts the process holds on to
// its thread until the process is gone, and unlocks it then.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	p.cmd.SysProcAttr = dieWithParent()

	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill returns when the process is gone.
func (p *process) kill() {
	// An error means that it has ended by itself.
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) pause() error {
	if err := p.cmd.Process.Signal(signalStop); err != nil {
		return err
	}
	return awaitStopped(p.pid())
}

func (p *process) resume() error {
	err := p.cmd.Process.Signal(signalContinue)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
