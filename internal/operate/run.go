// Package operate is the command onceguard without its main package. There are two: cmd/onceguard, whose package comment
// is the manual, and sqljournal/cmd/onceguard, which has database drivers and so reads a journal too.
package operate

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Environment is what a command uses of its process.
type Environment struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	User           string // who runs this process

	OpenJournal OpenJournal // nil if the command has no database driver
}

// Journal is a journal with what an operator needs of it.
type Journal interface {
	journal.Journal

	// Row returns the row of a key. It changes nothing.
	Row(ctx context.Context, key string) (Row, error)

	// Keys returns the keys of the rows that have no response: without an outcome, or done without a response. With answered
	// it returns those that have one.
	Keys(ctx context.Context, answered bool) ([]string, error)

	// Remove removes the row that token names. It returns lock.ErrChanged if the row has changed, and lock.ErrLive if the
	// row's time is not over and evenIfLive is false.
	Remove(ctx context.Context, key, token string, evenIfLive bool) error

	Close() error
}

// OpenJournal returns the journal of a namespace in the database at a URL. An error that a user can correct comes from
// [UsageError]. No error has a password.
type OpenJournal func(ctx context.Context, url, namespace string) (Journal, error)

// Main runs the command line of this process, until SIGINT or SIGTERM, and returns its exit code. open is nil if the
// command has no database driver.
func Main(open OpenJournal) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	redis.SetLogger(silent{})
	return Run(ctx, os.Args[1:], Environment{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, User: osUser(), OpenJournal: open,
	})
}

// silent is go-redis's logger. It prints nothing: the errors have the same facts, and go-redis would log addresses into
// the middle of the output.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// osUser returns the name of the user who runs this process.
func osUser() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}

// command is one of the commands.
type command struct {
	name, args, summary string
	flags               func(*flag.FlagSet, *config)
	prepare             func(Environment, *config) (action, error) // checks the flags, before anything is sent
}

// action is what a command does with Redis and the journal.
type action func(context.Context, *session) error

var commands = []command{
	{"inspect", "[flags] KEY", "show what a key holds", lockFlag, prepareInspect},
	{"forget", "-reason TEXT (-token TOKEN [flags] KEY | -list FILE [flags])",
		"remove exactly that claim or stored response, or the stored responses of a list", forgetFlags, prepareForget},
	{"resolve", "-token TOKEN -reason TEXT (-nothing-happened | -status N | -value FILE | -failed TEXT) [flags] KEY",
		"settle a request or a function whose outcome is unknown", resolveFlags, prepareResolve},
	{"scan", "-namespace NAME [flags]", "list the held and abandoned keys, or the responses with a status", scanFlags, prepareScan},
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

// UsageError returns the error of wrong flags or arguments.
func UsageError(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// IsUsage reports whether err is of wrong usage, such as a key that is none. Nothing was changed.
func IsUsage(err error) bool {
	return errors.As(err, new(usageError)) || isAny(err, lock.ErrNotStorageKey, middleware.ErrResolution)
}

// IsRefusal reports whether err means that what the key holds does not allow the change. Nothing was changed.
func IsRefusal(err error) bool {
	return isAny(err, errOnlyStored, lock.ErrChanged, lock.ErrLive, lock.ErrForeign,
		middleware.ErrUnreadable, middleware.ErrJournaled, middleware.ErrSettled)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case IsUsage(err):
		return exitUsage
	case errors.Is(err, errFree):
		return exitFree
	case IsRefusal(err):
		return exitRefused
	}
	return exitFailed
}

// output is a stream that remembers its first error.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// Run runs a command line and returns its exit code.
func Run(ctx context.Context, args []string, env Environment) int {
	stdout, stderr := &output{Writer: env.Stdout}, &output{Writer: env.Stderr}
	env.Stdout, env.Stderr = stdout, stderr
	err := dispatch(ctx, args, env)
	if lost := cmp.Or(stdout.err, stderr.err); lost != nil && err == nil {
		err = fmt.Errorf("the output is not complete: %w", lost)
	}
	if err != nil && !errors.Is(err, errFree) {
		text := strings.NewReplacer(":\n\t", ": ", "\n\t", "; ", "\n", "; ").Replace(err.Error()) // joined errors
		fmt.Fprintf(stderr, "onceguard: %s\n", printable(text))
	}
	return exitCode(err)
}

func dispatch(ctx context.Context, args []string, env Environment) error {
	first := ""
	if len(args) > 0 {
		first = args[0]
	}
	for _, c := range commands {
		if c.name == first {
			return c.execute(ctx, args[1:], env)
		}
	}
	out, err := env.Stdout, error(nil)
	if !slices.Contains([]string{"help", "-h", "-help", "--help"}, first) {
		out, err = env.Stderr, UsageError("the first argument is not a command") // which may be -redis=URL
	}
	fmt.Fprint(out, "onceguard shows the keys of packages middleware and once, and locks, in Redis, and settles requests\nand functions whose outcome is unknown.\n\n")
	for _, c := range commands {
		fmt.Fprintf(out, "  onceguard %-8s %s\n", c.name, c.summary)
	}
	fmt.Fprint(out, "\nonceguard COMMAND -help lists the flags.\nThe manual: https://pkg.go.dev/github.com/onceguard/onceguard/cmd/onceguard\n")
	return err
}

// execute parses the arguments of the command and runs it.
func (c *command) execute(ctx context.Context, args []string, env Environment) error {
	cfg := &config{command: c.name}
	set := flag.NewFlagSet("onceguard "+c.name, flag.ContinueOnError)
	set.SetOutput(io.Discard) // it would print what was given as it is
	cfg.flags(set)
	c.flags(set, cfg)
	rest, err := parse(set, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(env.Stderr, "usage: onceguard %s %s\n%s\n\n", c.name, c.args, c.summary)
		set.SetOutput(env.Stderr)
		set.PrintDefaults()
		return nil
	case err != nil:
		return UsageError("%w: onceguard %s -help lists the flags", err, c.name)
	}
	act, err := c.prepare(env, cfg)
	if err != nil {
		return err
	}
	err = act.do(ctx, env, cfg, rest)
	if c.name != "inspect" || env.OpenJournal == nil || cfg.lock != "" || cfg.redis == none || exitCode(err) != exitFailed {
		return err
	}
	cfg.redis, cfg.redisFailed = none, err // says what the journal has
	again := act.do(ctx, env, cfg, rest)
	if exitCode(again) != exitFailed || errors.Is(again, err) || again.Error() == err.Error() {
		return again
	}
	return errors.Join(err, again)
}

// do opens a session and acts in it.
func (a action) do(ctx context.Context, env Environment, cfg *config, args []string) error {
	s, err := newSession(ctx, env, cfg, args)
	if err == nil {
		err = a(ctx, s)
	}
	return errors.Join(err, s.close())
}

// parse parses flags before and behind the arguments that are none, and returns these. A flag must not be empty: then a
// variable of the operator's script is not set, and the rest could make another key.
func parse(set *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := set.Parse(args); err != nil {
			return nil, err
		}
		if set.NArg() == 0 {
			break
		}
		rest, args = append(rest, set.Arg(0)), set.Args()[1:]
	}
	set.Visit(func(f *flag.Flag) {
		if _, isOne := f.Value.(flag.Getter); isOne && f.Value.String() == "" {
			err = fmt.Errorf("-%s is empty", f.Name)
		}
	})
	return rest, err
}
