package operate

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// command is one of the commands.
type command struct {
	name, args, summary string
	takesKey            bool
	canDoWithoutRedis   bool // says what the journal has if Redis does not answer
	flags               func(*flag.FlagSet, *config)
	prepare             func(Environment, *config) (action, error) // checks the flags, before anything is sent
}

// action is what a command does with Redis.
type action func(context.Context, *session) error

var commands = []command{
	{"inspect", "[flags] KEY", "show what a key holds", true, true, lockFlag, prepareInspect},
	{"forget", "-reason TEXT (-token TOKEN [flags] KEY | -list FILE [flags])",
		"remove exactly that claim or stored response, or the stored responses of a list", true, false, forgetFlags, prepareForget},
	{"resolve", "-token TOKEN -reason TEXT (-nothing-happened | -status N | -value FILE | -failed TEXT) [flags] KEY",
		"settle a request or a function whose outcome is unknown", true, false, resolveFlags, prepareResolve},
	{"scan", "-namespace NAME [flags]", "list the held and abandoned keys, or the responses with a status", false, false, scanFlags, prepareScan},
}

// The exit codes.
const (
	exitDone = iota
	exitFailed
	exitUsage
	exitFree
	exitRefused
)

// errFree means that the key holds nothing.
var errFree = errors.New("the key is free")

// usageError is the error of wrong flags or arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func isUsage(err error) bool { return errors.As(err, new(usageError)) }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// output is a stream that remembers its first error.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Run runs a command line and returns its exit code.
func Run(ctx context.Context, args []string, env Environment) int {
	stdout, stderr := &output{Writer: env.Stdout}, &output{Writer: env.Stderr}
	env.Stdout, env.Stderr = stdout, stderr
	code := dispatch(ctx, args, env)
	if err := cmp.Or(stdout.err, stderr.err); err != nil && code == exitDone {
		return report(env, fmt.Errorf("the output is not complete: %w", err))
	}
	return code
}

func dispatch(ctx context.Context, args []string, env Environment) int {
	if len(args) == 0 {
		printUsage(env.Stderr)
		return exitUsage
	}
	for _, c := range commands {
		if c.name == args[0] {
			return report(env, c.execute(ctx, args[1:], env))
		}
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		printUsage(env.Stdout)
		return exitDone
	}
	fmt.Fprintln(env.Stderr, "onceguard: the first argument is not a command") // which may be -redis=URL
	printUsage(env.Stderr)
	return exitUsage
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, "onceguard shows the keys of packages middleware and once, and locks, in Redis, and settles requests\nand functions whose outcome is unknown.\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  onceguard %-8s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\nonceguard COMMAND -help lists the flags.\nThe manual: https://pkg.go.dev/github.com/onceguard/onceguard/cmd/onceguard\n")
}

// execute parses the arguments of the command and runs it.
func (c *command) execute(ctx context.Context, args []string, env Environment) error {
	cfg := new(config)
	set := flag.NewFlagSet("onceguard "+c.name, flag.ContinueOnError)
	set.SetOutput(io.Discard) // it would print what was given as it is
	cfg.commonFlags(set, c.takesKey)
	if c.flags != nil {
		c.flags(set, cfg)
	}
	rest, err := parse(set, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(env.Stderr, "usage: onceguard %s %s\n%s\n\n", c.name, c.args, c.summary)
		set.SetOutput(env.Stderr)
		set.PrintDefaults()
		return nil
	case err != nil:
		return usagef("%w: onceguard %s -help lists the flags", err, c.name)
	}
	act, err := c.prepare(env, cfg)
	if err != nil {
		return err
	}
	s, err := newSession(ctx, env, cfg, c.takesKey, rest)
	if err != nil {
		return err
	}
	if s.noRedis != nil && !c.canDoWithoutRedis {
		return errors.Join(s.noRedis, s.close())
	}
	return errors.Join(act(ctx, s), s.close())
}

// parse parses flags before and behind the arguments that are none, and returns these.
func parse(set *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := set.Parse(args); err != nil {
			return nil, err
		}
		if set.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, set.Arg(0)), set.Args()[1:]
	}
}

// report prints the error in one line, if there is one, and returns the exit code for it.
func report(env Environment, err error) int {
	if err != nil && !errors.Is(err, errFree) {
		text := strings.NewReplacer(":\n\t", ": ", "\n\t", "; ", "\n", "; ").Replace(err.Error()) // joined errors
		fmt.Fprintf(env.Stderr, "onceguard: %s\n", printable(text))
	}
	return exitCode(err)
}

func exitCode(err error) int {
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return exitDone
	case isUsage(err), is(lock.ErrNotStorageKey, middleware.ErrResolution):
		return exitUsage
	case is(errFree):
		return exitFree
	case is(errOnlyStored, lock.ErrChanged, lock.ErrLive, lock.ErrForeign, middleware.ErrUnreadable, middleware.ErrJournaled, middleware.ErrSettled):
		return exitRefused
	}
	return exitFailed
}
