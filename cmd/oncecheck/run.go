package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
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
	terminal       bool // stderr is one
	// How long a check takes until it is shown; 0: 15 seconds.
	tick time.Duration
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
	if err == nil {
		err = cmp.Or(writable("-junit", o.junit), writable("-markdown", o.markdown))
	}
	if err == nil && !o.mayTest {
		err = checkReach(ctx, net.DefaultResolver.LookupNetIP, o.URL, o.Also, o.OtherURL, o.EffectsURL)
	}
	if err != nil {
		return 0, err
	}
	o.Client = ask.NewClient(o.timeout, o.parallel, budget, o.insecure)
	defer o.Client.Close()
	session := check.NewSession(o.Config)
	if err := session.Start(ctx); ctx.Err() != nil {
		return 0, errors.New("interrupted")
	} else if err != nil {
		return 0, err
	}
	r := report.Report{Target: o.Method + " " + o.URL.String(), KeyHeader: o.KeyHeader, Seed: o.Seed, Verbose: o.verbose}
	next, end := showProgress(env, len(checks))
	session.Run(ctx, checks, next, func(result check.Result) {
		level := result.Check.Level
		r.Entries = append(r.Entries, report.Entry{
			Result: result, Known: slices.Contains(o.expected, result.Check.ID),
			Counts: level == check.Must || level == check.Should && o.strict,
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

// showProgress shows which of the checks is running: on a terminal in a line that changes, elsewhere when it takes long. The
// caller says when the next begins, and when it all ends.
func showProgress(env environment, of int) (next func(check.Check), end func()) {
	n, stop := 0, func() bool { return true }
	end = func() {
		if stop(); env.terminal {
			fmt.Fprint(env.stderr, "\r\x1b[K")
		}
	}
	next = func(c check.Check) {
		end()
		n++
		line := fmt.Sprintf("%d of %d: %s", n, of, c.ID)
		if env.terminal {
			fmt.Fprint(env.stderr, line)
			return
		}
		stop = time.AfterFunc(cmp.Or(env.tick, 15*time.Second), func() {
			fmt.Fprintln(env.stderr, "oncecheck:", line)
		}).Stop
	}
	return next, end
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

// writable returns an error if the file of a flag has no folder. It is asked before a run that takes minutes.
func writable(flag, name string) error {
	if name == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(name)); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
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

// parseExpected reads known failures: one id a line. What follows # is a comment.
func parseExpected(text string) (ids []string, err error) {
	for i, line := range strings.Split(text, "\n") {
		id, _, _ := strings.Cut(line, "#")
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		known, ok := check.Find(id)
		if !ok {
			return nil, fmt.Errorf("line %d: there is no check %q", i+1, id)
		}
		ids = append(ids, known.ID)
	}
	return ids, nil
}

// conclude returns the exit code. It tells of known failures that did not fail, although they were to be asked.
func conclude(r report.Report, stderr io.Writer) (code int, err error) {
	sums := r.Sums()
	if sums.NotAsked == len(r.Entries) {
		return 0, errors.New("none of the checks could be asked; the table says why")
	}
	if sums.Failed > 0 {
		code = exitFailed
	}
	for _, e := range r.Entries {
		if !e.Known || e.Verdict == check.Failed {
			continue
		}
		how := "holds now: remove it from -expect"
		if e.Verdict == check.NotAsked {
			how = "was not asked: " + e.Sentence
		}
		fmt.Fprintf(stderr, "oncecheck: %s is a known failure, and %s\n", e.Check.ID, how)
		code = exitFailed
	}
	return code, nil
}

// resolver looks up the addresses of a host.
type resolver func(ctx context.Context, network, host string) ([]netip.Addr, error)

// checkReach returns an error unless every address of every URL is on this machine or on a private network.
func checkReach(ctx context.Context, lookup resolver, urls ...*url.URL) error {
	for _, u := range urls {
		if u == nil {
			continue
		}
		addresses, err := lookup(ctx, "ip", u.Hostname())
		if err != nil {
			return fmt.Errorf("%s: %w", u.Hostname(), err)
		}
		for _, a := range addresses {
			a = a.Unmap()
			if !a.IsLoopback() && !a.IsPrivate() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() {
				return fmt.Errorf("%s (%s) is on the public internet, and this creates hundreds of operations there: "+
					"give -i-may-test-this if you are allowed to", u.Hostname(), a)
			}
		}
	}
	return nil
}
