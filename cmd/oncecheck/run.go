package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/report"
)

// environment is what the command uses of its process.
type environment struct {
	stdout, stderr io.Writer
	terminal       bool          // stderr is one
	tick           time.Duration // how often progress is shown; 0: each second on a terminal, otherwise each 15
}

// The exit codes.
const (
	exitHeld = iota
	exitFailed
	exitNotAsked
)

// budget is how many requests a run may send.
const budget = 3000

// run runs the command line and returns its exit code.
func run(ctx context.Context, args []string, env environment) int {
	code := exitHeld
	o, err := parse(args, env.stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitHeld
	case err == nil && o.list:
		err = list(env.stdout)
	case err == nil:
		code, err = o.ask(ctx, env)
	}
	if err != nil {
		fmt.Fprintln(env.stderr, "oncecheck:", err)
		return exitNotAsked
	}
	return code
}

// list prints the table of all checks.
func list(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, c := range check.All() {
		only := ""
		if c.Profiles != nil {
			only = " (asked only with -profile " + strings.Join(c.Profiles, ", ") + ")"
		}
		fmt.Fprintf(table, "%s\t%s\t%s%s\n", c.ID, c.Level, c.Title, only)
	}
	return table.Flush()
}

// ask asks the server and reports.
func (o *options) ask(ctx context.Context, env environment) (int, error) {
	checks, err := o.choose()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(writable("-junit", o.junit), writable("-markdown", o.markdown)); err != nil {
		return 0, err
	}
	if !o.mayTest {
		if err := checkReach(ctx, systemResolver, o.URL, o.Also, o.OtherURL, o.EffectsURL); err != nil {
			return 0, err
		}
	}
	o.Client = ask.NewClient(o.timeout, o.parallel, budget, o.insecure)
	defer o.Client.Close()
	next, end := showProgress(env, len(checks))
	defer end()
	session := check.NewSession(o.Config)
	if err := session.Start(ctx); ctx.Err() != nil {
		return 0, errors.New("interrupted")
	} else if err != nil {
		return 0, err
	}
	r := report.Report{Target: o.Method + " " + o.URL.String(), KeyHeader: o.KeyHeader, Seed: o.Seed, Verbose: o.verbose}
	session.Run(ctx, checks, func(c check.Check) { next(c.ID) }, func(result check.Result) {
		r.Entries = append(r.Entries, report.Entry{
			Result: result, Counts: o.counts(result.Check.Level), Known: slices.Contains(o.expected, result.Check.ID),
		})
	})
	end()
	r.Requests = budget - o.Client.Left()
	if err := o.write(r, env.stdout); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("interrupted: %d of %d checks were asked", len(r.Entries), len(checks))
	}
	return conclude(r, env.stderr)
}

// write writes the report to stdout and to the files.
func (o *options) write(r report.Report, stdout io.Writer) error {
	show := r.Text
	if o.json {
		show = r.JSON
	}
	if err := show(stdout); err != nil {
		return err
	}
	// GITHUB_STEP_SUMMARY may have other parts.
	return errors.Join(writeFile(o.junit, os.O_TRUNC, r.JUnit), writeFile(o.markdown, os.O_APPEND, r.Markdown))
}

// writable returns an error if the file of a flag cannot be written. It is asked before a run that takes minutes.
func writable(flag, name string) error {
	if name == "" {
		return nil
	}
	_, missing := os.Stat(name)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	err = f.Close()
	if errors.Is(missing, fs.ErrNotExist) {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

func writeFile(name string, mode int, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|mode, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// conclude returns the exit code.
func conclude(r report.Report, stderr io.Writer) (int, error) {
	sums := r.Sums()
	if sums.NotAsked == len(r.Entries) {
		return 0, errors.New("none of the checks could be asked; the table says why")
	}
	code := exitHeld
	if sums.Failed > 0 {
		code = exitFailed
	}
	for _, line := range surprises(r.Entries) {
		fmt.Fprintln(stderr, "oncecheck:", line)
		code = exitFailed
	}
	return code, nil
}
