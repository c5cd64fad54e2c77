// The processes of servers.

package main

import (
	"os/exec"
	"runtime"
)

// process is a command that runs until it is stopped, at the latest when this process ends.
type process struct {
	*exec.Cmd
	ended chan struct{} // closed once the process is gone
}

// newProcess returns a process that is pinned to the core, unless that is empty.
func newProcess(core string, command ...string) *process {
	if core != "" {
		command = append([]string{"taskset", "--cpu-list", core}, command...)
	}
	p := &process{exec.Command(command[0], command[1:]...), make(chan struct{})}
	p.SysProcAttr = diesWithParent()
	return p
}

// start starts the process from a thread that lives as long as it: to the kernel, the thread is the parent that the
// process dies with.
func (p *process) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.Start()
		started <- err
		if err == nil {
			_ = p.Wait() // it is killed
			close(p.ended)
		}
	}()
	return <-started
}

// stop kills the process and returns when it is gone.
func (p *process) stop() {
	_ = p.Process.Kill() // an error means that it has ended by itself
	<-p.ended
}
