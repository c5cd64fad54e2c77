package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/child"
)

// Program is what a test binary runs instead of its tests when [Run] starts it: a client that a test can pause or kill.
type Program struct {
	Name string

	// Run gets the args of [Run]. It reads from in the lines of [Process.Send], until the test calls [Process.Wait],
	// and writes to out the lines for [Process.Line]. An error goes to standard error, and the process exits with 1.
	Run func(args []string, in io.Reader, out io.Writer) error
}

// programEnv is the environment variable that names the program of a process.
const programEnv = "REDISTEST_PROGRAM"

func execute(programs []Program, name string) int {
	i := slices.IndexFunc(programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		fmt.Fprintf(os.Stderr, "redistest: Main was given no program %q\n", name)
		return 1
	}
	if err := programs[i].Run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Process is a [Program] that runs in a separate process. Its methods may be called from any goroutine that may end the
// test.
type Process struct {
	name    string
	process *child.Process
	input   io.WriteCloser
	output  lines
	errors  string // file with standard error
}

// lines has the lines that were written to it and not read yet.
type lines struct {
	part  []byte      // of a line whose end was not written yet
	whole chan string // closed after the last one
}

// unread is how many lines a program may print before its test reads them.
const unread = 1 << 16

func (l *lines) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	for {
		line, rest, ended := bytes.Cut(l.part, []byte("\n"))
		if !ended {
			return len(b), nil
		}
		l.whole <- string(line)
		l.part = rest
	}
}

// Run starts the test binary as one of the programs passed to [Main]. The end of the test kills it, as does, on Linux,
// the end of the test binary. The log of a failed test has its standard error. A data race in it fails the test.
func Run(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	p := &Process{name: name, errors: filepath.Join(t.TempDir(), "stderr"), output: lines{whole: make(chan string, unread)}}
	if err := p.start(args); err != nil {
		t.Fatalf("redistest: running %s: %v", name, err)
	}
	t.Cleanup(func() {
		p.Kill(t)
		text := p.stderr()
		if bytes.Contains(text, []byte("WARNING: DATA RACE")) {
			t.Errorf("redistest: %s has a data race", name)
		}
		if t.Failed() && len(text) > 0 {
			t.Logf("%s on standard error:\n%s", name, text)
		}
	})
	return p
}

func (p *Process) start(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	stderr, err := os.Create(p.errors)
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), programEnv+"="+p.name)
	cmd.Stdout, cmd.Stderr = &p.output, stderr
	if p.input, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if p.process, err = child.Start(cmd, nil, syscall.SIGKILL); err != nil {
		return err
	}
	go func() {
		<-p.process.Done // then all of its output was written
		close(p.output.whole)
	}()
	return nil
}

// Line returns the next line of standard output, even after the process has ended, except a last line without a
// newline. It ends the test if no line comes.
func (p *Process) Line(t testing.TB) string {
	t.Helper()
	select {
	case line, ok := <-p.output.whole:
		if !ok {
			t.Fatalf("redistest: %s has ended without another line\n%s", p.name, p.stderr())
		}
		return line
	case <-time.After(patience):
		t.Fatalf("redistest: no line of %s within %v\n%s", p.name, patience, p.stderr())
	}
	return ""
}

// Send writes a line to the standard input of the process. It ends the test if the process has ended.
func (p *Process) Send(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(p.input, line+"\n"); err != nil {
		t.Fatalf("redistest: sending to %s: %v\n%s", p.name, err, p.stderr())
	}
}

// Pause stops the process with SIGSTOP. It returns when every thread has stopped.
func (p *Process) Pause(t testing.TB) {
	t.Helper()
	if err := p.process.Pause(); err != nil {
		t.Fatalf("redistest: pausing %s: %v\n%s", p.name, err, p.stderr())
	}
}

// Resume continues a paused process with SIGCONT. It has no effect on one that runs or has ended.
func (p *Process) Resume(t testing.TB) {
	t.Helper()
	if err := p.process.Resume(); err != nil {
		t.Fatalf("redistest: resuming %s: %v", p.name, err)
	}
}

// Kill ends the process with SIGKILL, paused or not. It returns when the process has ended.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.process.End(syscall.SIGKILL); err != nil {
		t.Errorf("redistest: killing %s: %v", p.name, err)
	}
}

// Wait closes the standard input of the process and waits for its end. If the exit code is not 0, the error wraps an
// [exec.ExitError], and contains the standard error of the process.
func (p *Process) Wait(t testing.TB) error {
	t.Helper()
	if err := p.input.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatalf("redistest: the input of %s: %v", p.name, err)
	}
	select {
	case <-p.process.Done:
	case <-time.After(patience):
		t.Fatalf("redistest: %s has not ended within %v\n%s", p.name, patience, p.stderr())
	}
	if state := p.process.Cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%s: %w\n%s", p.name, &exec.ExitError{ProcessState: state}, p.stderr())
	}
	return nil
}

// stderr returns the standard error of the process so far.
func (p *Process) stderr() []byte {
	b, err := os.ReadFile(p.errors)
	if err != nil {
		return fmt.Appendf(nil, "(its standard error cannot be read: %v)", err)
	}
	return b
}
