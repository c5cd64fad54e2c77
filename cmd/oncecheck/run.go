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
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/report"
)

// environment is what the command uses of its process.
type environment struct {
	stdout, stderr io.Writer
	terminal       bool // stderr is one
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
	if err == nil && !o.mayTest {
		err = checkReach(ctx, net.DefaultResolver.LookupNetIP, o.URL, o.Also, o.EffectsURL)
	}
	if err != nil {
		return 0, err
	}
	// Before a run that takes minutes. GITHUB_STEP_SUMMARY may have other parts.
	junit, err := open("-junit", o.junit, os.O_TRUNC)
	if err != nil {
		return 0, err
	}
	defer junit.Close()
	markdown, err := open("-markdown", o.markdown, os.O_APPEND)
	if err != nil {
		return 0, err
	}
	defer markdown.Close()
	o.Client = ask.NewClient(o.timeout, o.parallel, budget, o.insecure)
	session := check.NewSession(o.Config)
	if err := session.Start(ctx); ctx.Err() != nil {
		return 0, errors.New("interrupted")
	} else if err != nil {
		return 0, err
	}
	r := report.Report{Target: o.Method + " " + o.URL.String(), Verbose: o.verbose}
	begin := func(c check.Check) {
		showProgress(env, fmt.Sprintf("%d of %d: %s", len(r.Entries)+1, len(checks), c.ID))
	}
	session.Run(ctx, checks, begin, func(result check.Result) {
		level := result.Check.Level
		r.Entries = append(r.Entries, report.Entry{
			Result: result, Known: slices.Contains(o.expected, result.Check.ID),
			Counts: level == check.Must || level == check.Should && o.strict,
		})
	})
	showProgress(env, "")
	r.Requests = budget - o.Client.Left()
	show := r.Text
	if o.json {
		show = r.JSON
	}
	if err := errors.Join(show(env.stdout), r.JUnit(junit), r.Markdown(markdown)); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("interrupted: %d of %d checks were asked", len(r.Entries), len(checks))
	}
	return conclude(r, env.stderr)
}

// showProgress shows on a terminal which of the checks is running, or that it all has ended.
func showProgress(env environment, line string) {
	if env.terminal {
		fmt.Fprint(env.stderr, "\r\x1b[K", line)
	}
}

// open opens the file of a flag, or one that takes nothing.
func open(flag, name string, mode int) (*os.File, error) {
	f, err := os.OpenFile(cmp.Or(name, os.DevNull), os.O_WRONLY|os.O_CREATE|mode, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return f, nil
}

// parseExpected reads known failures: one id a line. What follows # is a comment.
func parseExpected(text string) (ids []string, err error) {
	for i, line := range strings.Split(text, "\n") {
		id, _, _ := strings.Cut(line, "#")
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		if !slices.ContainsFunc(check.All(), func(c check.Check) bool { return c.ID == id }) {
			return nil, fmt.Errorf("line %d: there is no check %q", i+1, id)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// conclude returns the exit code. It tells of known failures that did not fail, although they were to be asked.
func conclude(r report.Report, stderr io.Writer) (code int, err error) {
	sums := r.Sums()
	if sums["not asked"] == len(r.Entries) {
		return 0, errors.New("none of the checks could be asked; the table says why")
	}
	if sums["failed"] > 0 {
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
