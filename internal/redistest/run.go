package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	input   *os.File
	output  chan string // lines; closed after the last one
	errors  string      // file with standard error
}

// unread is how many lines a program may print before its test reads them.
const unread = 1 << 16

// Run starts the test binary as one of the programs passed to [Main]. The end of the test kills it, as does, on Linux,
// the end of the test binary. The log of a failed test has its standard error. A data race in it fails the test.
func Run(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	p := &Process{name: name, errors: filepath.Join(t.TempDir(), "stderr")}
	if err := p.start(args); err != nil {
		t.Fatalf("redistest: running %s: %v", name, err)
	}
	t.Cleanup(func() {
		p.Kill(t)
		for range p.output { // to its end
		}
		p.input.Close()
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
	in, input, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	output, out, err := os.Pipe()
	if err != nil {
		input.Close()
		return err
	}
	defer out.Close()
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), programEnv+"="+p.name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, stderr
	if p.process, err = child.Start(cmd, nil, syscall.SIGKILL); err != nil {
		input.Close()
		output.Close()
		return err
	}
	p.input, p.output = input, make(chan string, unread)
	go func() {
		defer output.Close()
		defer close(p.output)
		for in := bufio.NewReader(output); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			p.output <- strings.TrimSuffix(line, "\n")
		}
	}()
	return nil
}

// ShellCommand returns a line for sh that starts the test binary as one of the programs passed to [Main], so that a test of
// what runs a command needs no other program.
func ShellCommand(t testing.TB, name string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	words := []string{programEnv + "=" + quote(name), quote(self)}
	for _, arg := range args {
		words = append(words, quote(arg))
	}
	return strings.Join(words, " ")
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Line returns the next line of standard output, even after the process has ended, except a last line without a
// newline. It ends the test if no line comes.
func (p *Process) Line(t testing.TB) string {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, ok := <-p.output:
		if !ok {
			t.Fatalf("redistest: %s has ended without another line\n%s", p.name, p.stderr())
		}
		return line
	case <-timer.C:
		t.Fatalf("redistest: no line of %s within %v\n%s", p.name, patience, p.stderr())
	}
	return ""
}

// Rest waits for the end of the process, as Wait does, and returns the lines that Line has not returned.
func (p *Process) Rest(t testing.TB) []string {
	t.Helper()
	_ = p.Wait(t)
	var rest []string
	for line := range p.output {
		rest = append(rest, line)
	}
	return rest
}

// Send writes a line to the standard input of the process. It ends the test if the process has ended.
func (p *Process) Send(t testing.TB, line string) {
	t.Helper()
	err := p.input.SetWriteDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = p.input.WriteString(line + "\n")
	}
	if err != nil {
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
	if err := p.process.Stop(syscall.SIGKILL); err != nil {
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
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case <-p.process.Done:
	case <-deadline.C:
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
