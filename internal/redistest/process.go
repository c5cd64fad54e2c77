package redistest

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
)

// process is a child process. A goroutine waits for its end from the start.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // the result of Wait; set before done is closed
}

// startProcess runs cmd. The caller closes the files of cmd.
//
// Linux kills the child when the thread that started it ends (PR_SET_PDEATHSIG), which may be before the parent process
// does: the Go runtime ends a thread when a goroutine returns while locked to it. So the goroutine that starts the
// child keeps its thread locked until the child has ended, and then unlocks it.
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

func (p *process) kill() {
	// An error means that the process has already ended.
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
