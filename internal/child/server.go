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
	Name     string             // for errors
	Dir      string             // its own directory, with its log
	Port     int                // set by Start
	Command  func() *exec.Cmd   // returns the command that runs it on Port
	Ready    func(pid int) bool // reports whether that process serves
	As       *Account           // that it runs as
	OnCrash  syscall.Signal     // ends it at once, also if this process ends
	OnStop   syscall.Signal     // ends it in order
	*Process                    // the latest one, which may have ended; nil before Start
}

var errPortTaken = errors.New("the port is taken")

// Start runs the server on a free port, and returns when it serves.
func (s *Server) Start() error { return s.startOn(FreePort) }

// Restart runs a server that has ended on the same port again, and returns when it serves.
func (s *Server) Restart() error {
	return s.startOn(func() (int, error) { return s.Port, nil })
}

// startOn tries again while another process listens on the port, as FreePort of another process does for a moment.
func (s *Server) startOn(port func() (int, error)) (err error) {
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); {
		if s.Port, err = port(); err == nil {
			err = s.launch()
		}
		if !errors.Is(err, errPortTaken) {
			break
		}
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
	if s.Process, err = Start(cmd, s.As, s.OnCrash); err != nil {
		return err
	}
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(Patience); !s.Ready(cmd.Process.Pid); {
		select {
		case <-s.Done:
			if strings.Contains(s.Log(), "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("%s ended at once: %v\n%s", s.Name, cmd.ProcessState, s.Log())
		case <-poll.C:
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("%s is not ready\n%s", s.Name, s.Log()), s.Crash())
		}
	}
	return nil
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Crash ends the server at once, as a power failure would, except that the kernel still writes its buffers. All
// connections break.
func (s *Server) Crash() error { return s.end(s.OnCrash) }

// Stop shuts the server down: it rolls back open transactions.
func (s *Server) Stop() error { return s.end(s.OnStop) }

// Close shuts the server down, and removes what it has stored.
func (s *Server) Close() error {
	if err := s.Stop(); err != nil {
		return err
	}
	return os.RemoveAll(s.Dir)
}

func (s *Server) end(how syscall.Signal) error {
	if s.Process == nil {
		return nil
	}
	return s.Process.End(how)
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

// StartNew makes the server's directory, which the account owns, runs a command in it that initializes the server, and
// starts the server. It leaves nothing behind if it fails.
func (s *Server) StartNew(account string, initialize func() (*exec.Cmd, error)) (err error) {
	if s.As, err = Unprivileged(account); err != nil {
		return err
	}
	if s.Dir, err = os.MkdirTemp("", "onceguard-"+account+"-"); err != nil {
		return err
	}
	if err = s.As.Own(s.Dir); err == nil {
		err = s.initialize(initialize)
	}
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(s.Dir))
	}
	return err
}

func (s *Server) initialize(by func() (*exec.Cmd, error)) error {
	cmd, err := by()
	if err != nil {
		return err
	}
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
