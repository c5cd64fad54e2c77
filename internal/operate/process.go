package operate

import (
	"context"
	"io"
	"os"
	"os/signal"
	"os/user"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Environment is what a command uses of its process.
type Environment struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	User           string // who runs this process

	OpenJournal OpenJournal // nil if the command has no database driver
}

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
	if before := os.Getenv("SUDO_USER"); before != "" {
		return u.Username + ", by sudo from " + before
	}
	return u.Username
}
