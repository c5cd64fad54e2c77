package redistest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

var programs = []redistest.Program{
	{Name: "echo", Run: echo},
	{Name: "fail", Run: func([]string, io.Reader, io.Writer) error { return errors.New("out of luck") }},
	{Name: "count", Run: count},
	{Name: "race", Run: race},
	{Name: "incr", Run: incr},
}

// echo prints its arguments, and then each line of its input.
func echo(args []string, in io.Reader, out io.Writer) error {
	fmt.Fprintf(out, "%q\n", args)
	for input := bufio.NewScanner(in); input.Scan(); {
		fmt.Fprintln(out, input.Text())
	}
	_, err := io.WriteString(out, "the end") // without a newline
	return err
}

// count prints more than a pipe can buffer.
func count(_ []string, _ io.Reader, out io.Writer) error {
	for i := range 100_000 {
		if _, err := fmt.Fprintln(out, i); err != nil {
			return err
		}
	}
	return nil
}

func race([]string, io.Reader, io.Writer) error {
	n, done := 0, make(chan struct{})
	go func() { n++; close(done) }()
	n++
	<-done
	return nil
}

// incr increments a key and prints its value, until it is killed.
func incr(args []string, _ io.Reader, out io.Writer) error {
	client := redis.NewClient(&redis.Options{Addr: args[0]})
	defer client.Close()
	for {
		n, err := client.Incr(context.Background(), "n").Result()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, n); err != nil {
			return err
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	p := redistest.Run(t, "echo", "-test.v", "two words")
	if got, want := p.Line(t), `["-test.v" "two words"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, want := range []string{"one", "", "three"} {
		p.Send(t, want)
		if got := p.Line(t); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	p.Send(t, "four")
	p.Send(t, "five")
	if err := p.Wait(t); err != nil {
		t.Error(err)
	}
	if got, want := p.Line(t), "four"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := p.Rest(t), []string{"five"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := p.Wait(t); err != nil { // once more
		t.Error(err)
	}
	p.Kill(t)
	p.Resume(t)
}

func TestRunKeepsEveryLine(t *testing.T) {
	t.Parallel()
	p := redistest.Run(t, "count")
	if err := p.Wait(t); err != nil {
		t.Error(err)
	}
	got := p.Rest(t)
	if len(got) != 100_000 || got[0] != "0" || got[99_999] != "99999" {
		t.Errorf("got %d lines", len(got))
	}
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"fail": "out of luck", "none": `no program "none"`} {
		err := redistest.Run(t, name).Wait(t)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Line of a process that has ended fails the test, with the standard error of the process.
func TestLineAfterTheEnd(t *testing.T) {
	t.Parallel()
	p := redistest.Run(t, "fail")
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Line(r)
	}()
	<-done
	if r.outcome != "failed" || !strings.Contains(r.message, "out of luck") {
		t.Errorf("got %q: %s", r.outcome, r.message)
	}
}

func TestPauseAndKillAProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.Run(t, "incr", server.Addr())
	for range 100 {
		p.Line(t)
	}
	n := func() string { n, _ := server.Raw(t, "n"); return n }
	for range 3 {
		p.Pause(t)
		idle := server.Client(t)
		idle.Ping(within(t)) // after the last INCR of the process
		before := n()
		for range 100 {
			idle.Ping(within(t))
		}
		if after := n(); after != before {
			t.Errorf("paused: n went from %s to %s", before, after)
		}
		p.Resume(t)
		eventually(t, "the process continues", func() bool { return n() != before })
	}
	p.Pause(t)
	p.Kill(t)
	var exit *exec.ExitError
	if err := p.Wait(t); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("killed: got %v", err)
	}
	printed := p.Rest(t)
	if len(printed) == 0 {
		t.Fatal("no output after the kill")
	}
	last, err := strconv.Atoi(printed[len(printed)-1])
	if err != nil {
		t.Fatal(err)
	}
	// It may have been killed before it printed the last value.
	if got := n(); got != strconv.Itoa(last) && got != strconv.Itoa(last+1) {
		t.Errorf("the process printed %d, the server has %s", last, got)
	}
}

// A shell gets the arguments as they are, and the exit code of the program.
func TestShellCommand(t *testing.T) {
	t.Parallel()
	line := redistest.ShellCommand(t, "echo", "it's", "$HOME; exit 3", "")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line+" && echo ' and more'")
	cmd.Stdin = strings.NewReader("a line\n")
	if out, err := cmd.Output(); err != nil || string(out) != "[\"it's\" \"$HOME; exit 3\" \"\"]\na line\nthe end and more\n" {
		t.Errorf("%q, %v", out, err)
	}
	if err := exec.CommandContext(t.Context(), "sh", "-c", redistest.ShellCommand(t, "fail")).Run(); err == nil {
		t.Error("no error")
	}
}
