package child

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Server is a server process that listens on a port of the loopback address. Its methods must not be called concurrently.
type Server struct {
	Name    string             // for errors
	Dir     string             // its own directory, with its log
	Port    int                // set by Start
	Command func() *exec.Cmd   // returns the command that runs it on Port
	Ready   func(pid int) bool // reports whether that process serves
	As      *Account           // that it runs as
	Last    syscall.Signal     // that it gets if this process ends
	process *Process
}

var errPortTaken = errors.New("the port is taken")

// Start runs the server on a free port, and returns when it serves.
func (s *Server) Start() error {
	err := errPortTaken
	for try := 0; try < 10 && errors.Is(err, errPortTaken); try++ {
		if s.Port, err = FreePort(); err == nil {
			err = s.launch()
		}
	}
	return err
}

// Restart runs a server that has ended on the same port again, and returns when it serves.
func (s *Server) Restart() error {
	deadline := time.Now().Add(Patience)
	err := s.launch()
	for errors.Is(err, errPortTaken) && time.Now().Before(deadline) {
		err = s.launch()
	}
	return err
}

func (s *Server) launch() error {
	log, err := os.Create(s.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.Command()
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, log, log
	if s.process, err = Start(cmd, s.As, s.Last); err != nil {
		return err
	}
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(Patience); !s.Ready(cmd.Process.Pid); {
		select {
		case <-s.process.Done:
			if strings.Contains(s.Log(), "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("%s ended at once: %v\n%s", s.Name, cmd.ProcessState, s.Log())
		case <-poll.C:
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("%s is not ready\n%s", s.Name, s.Log()), s.Stop(syscall.SIGKILL))
		}
	}
	return nil
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Process is the server's latest process, which may have ended. It is nil before Start.
func (s *Server) Process() *Process { return s.process }

// Stop ends the server by a signal, unless it has ended.
func (s *Server) Stop(how syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	return s.process.Stop(how)
}

func (s *Server) logFile() string { return filepath.Join(s.Dir, "log") }

// Log is what the latest process has logged.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return fmt.Sprintf("(the log cannot be read: %v)", err)
	}
	return string(b)
}

// Initialize runs a command before the first Start, as the server's account, in its directory.
func (s *Server) Initialize(cmd *exec.Cmd) error {
	var out strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, &out, &out
	p, err := Start(cmd, s.As, syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.Done
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %v\n%s", cmd.Path, cmd.ProcessState, &out)
	}
	return nil
}
