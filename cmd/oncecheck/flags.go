package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/check"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/hook"
)

// options has the values of the command line.
type options struct {
	check.Config

	list, strict, atMostOnce, json, insecure, mayTest, verbose bool
	only, skip                                                 []string
	expected                                                   []string // the known failures
	junit, markdown                                            string
	later                                                      []func() error // see parseLater
	profile                                                    profile
	timeout                                                    time.Duration
	parallel                                                   int
}

const usage = `usage: oncecheck [flags] URL

Asks the server at URL whether a request that arrives twice with one Idempotency-Key takes effect once. It sends
about 1,500 requests: use a database that may fill up. Begin with these flags, as for curl:

  oncecheck -H 'Authorization: Bearer ann' -d '{"amount":{{n}}}' -effects http://127.0.0.1:8080/payments \
    http://127.0.0.1:8080/payments

The manual: https://pkg.go.dev/github.com/onceguard/onceguard/cmd/oncecheck

`

// parse parses the command line. If it asks for help, that goes to w.
func parse(args []string, w io.Writer) (*options, error) {
	o := &options{profile: draft07}
	set := flag.NewFlagSet("oncecheck", flag.ContinueOnError)
	set.SetOutput(io.Discard) // run prints the error
	set.Usage = func() {}
	o.requestFlags(set)
	o.serverFlags(set)
	o.runFlags(set)
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(w, usage)
		set.SetOutput(w)
		set.PrintDefaults()
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w (oncecheck -h explains the flags)", err)
	}
	if o.list {
		return o, nil
	}
	if set.NArg() != 1 {
		return nil, errors.New("want one URL behind the flags, that of a request which creates something (oncecheck -h shows an example)")
	}
	return o, o.complete(set.Arg(0))
}

func (o *options) requestFlags(set *flag.FlagSet) {
	set.StringVar(&o.Method, "X", "POST", "`method` of the request")
	set.Func("H", "`header` of the request, 'Name: value'; repeatable", o.headerFlag("-H", &o.Header))
	set.Func("H2", "`header` of a second user, in place of -H of that name; repeatable", o.headerFlag("-H2", &o.User2))
	set.Func("d", "`body` of the request, or @FILE; may contain {{n}}, {{uuid}}, {{key}}", bodyFlag(&o.Body))
	set.Func("other-d", "`body` of another request (default: -d with another {{n}})", bodyFlag(&o.OtherBody))
	set.Func("bad-d", "`body` that the server refuses (default: JSON that is cut)", bodyFlag(&o.BadBody))
	set.StringVar(&o.KeyHeader, "key-header", "Idempotency-Key", "`name` of the key's header")
	set.StringVar(&o.KeyFormat, "key", "", "`format` of the key in its header, with {{key}} (default: in quotes or, if that is refused, without)")
	set.Func("slow", "`query` that makes the server take about a second; repeatable, such as before and after the effect", queryFlag(&o.Slow))
	set.Func("fail", "`query` that makes the server fail; repeatable, such as before and after the effect", queryFlag(&o.Fail))
	set.Func("sample", "`query` whose response is of another kind; repeatable", queryFlag(&o.Samples))
}

func (o *options) serverFlags(set *flag.FlagSet) {
	set.Func("effects", "`command` or URL that counts what happened: a number or a JSON array", o.effectsFlag)
	set.Func("also", "`URL` of a second instance of the service", o.urlFlag(&o.Also))
	set.Func("other-url", "`URL` of another route that takes the same request", o.urlFlag(&o.OtherURL))
	set.StringVar((*string)(&o.Restart), "restart", "", "`command` that kills the server and starts it again")
	set.StringVar((*string)(&o.StoreDown), "store-down", "", "`command` that stops the server's store of keys")
	set.StringVar((*string)(&o.StoreUp), "store-up", "", "`command` that starts it again")
	set.BoolVar(&o.insecure, "insecure", false, "do not verify the server's certificate")
	set.BoolVar(&o.mayTest, "i-may-test-this", false, "ask a host on the public internet: you are allowed to")
}

func (o *options) runFlags(set *flag.FlagSet) {
	set.BoolVar(&o.list, "list", false, "list the checks and exit")
	set.Func("only", "`ids` of the checks to run, with commas; an id may end in *", listFlag(&o.only))
	set.Func("skip", "`ids` of the checks to leave out", listFlag(&o.skip))
	set.Func("expect", "`file` of known failures, one id a line", o.expectFlag)
	set.BoolVar(&o.strict, "strict", false, "failures of a SHOULD count")
	set.BoolVar(&o.atMostOnce, "at-most-once", false, "the server promises that nothing runs twice even after a crash")
	set.Func("profile", "`name` of an API whose rules apply in place of the draft's: acp, ucp, stripe", o.profileFlag)
	set.Func("status", "`kind=status,...` of refusals: missing, invalid, reused, in-flight; repeatable", o.statusFlag)
	set.DurationVar(&o.timeout, "timeout", 10*time.Second, "`time` for one response")
	set.DurationVar(&o.Patience, "patience", time.Minute, "`time` for which a request is repeated until it is answered")
	set.IntVar(&o.parallel, "parallel", 50, "requests at a time")
	set.Uint64Var(&o.Seed, "seed", rand.Uint64N(1_000_000), "`number` that decides the order of load/shuffled")
	set.BoolVar(&o.verbose, "verbose", false, "tell every failure in full")
	set.BoolVar(&o.json, "json", false, "print JSON instead of the table")
	set.StringVar(&o.junit, "junit", "", "also write JUnit's XML to `file`")
	set.StringVar(&o.markdown, "markdown", "", "also append Markdown to `file`")
}

// complete checks the values, and takes those that no flag has from the profile.
func (o *options) complete(target string) error {
	o.profile.apply(&o.Config)
	_ = o.urlFlag(&o.URL)(target)
	for _, parse := range o.later {
		if err := parse(); err != nil {
			return err
		}
	}
	templates := []string{target, o.Body, o.OtherBody, o.BadBody, o.KeyFormat}
	for _, f := range slices.Concat(o.Header, o.User2) {
		templates = append(templates, f.Value)
	}
	for _, template := range templates {
		if err := ask.CheckTemplate(template); err != nil {
			return err
		}
	}
	switch {
	case o.KeyFormat != "" && !strings.Contains(o.KeyFormat, "{{key}}"):
		return errors.New("-key must contain {{key}}")
	case o.StoreDown.Given() != o.StoreUp.Given():
		return errors.New("-store-down and -store-up belong together")
	case len(o.User2) > 0 && !slices.ContainsFunc(o.User2, func(f ask.Field) bool { return !slices.Equal(values(o.User2, f), values(o.Header, f)) }):
		return errors.New("-H2 says what -H says: give what is another user's")
	case o.parallel < 1:
		return errors.New("-parallel must be at least 1")
	case o.timeout <= 0 || o.Patience <= 0:
		return errors.New("-timeout and -patience must be above 0")
	}
	return nil
}

// values returns the values of the lines that have the name of f.
func values(fields []ask.Field, f ask.Field) (all []string) {
	for _, line := range fields {
		if strings.EqualFold(line.Name, f.Name) {
			all = append(all, line.Value)
		}
	}
	return all
}

// parseURL parses a URL. Without a scheme it is that of a server that speaks plain HTTP, as for curl.
func parseURL(s string) (*url.URL, error) {
	if s != "" && !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	var failed *url.Error
	switch {
	case errors.As(err, &failed):
		return nil, fmt.Errorf("the URL cannot be read: %w", failed.Err) // and is not shown: it may have a password
	case u.User != nil:
		return nil, errors.New("credentials belong into -H, not into the URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q is no URL with http:// or https://", s)
	case u.Hostname() == "":
		return nil, fmt.Errorf("%q has no host, such as 127.0.0.1", s)
	}
	u.Path, u.Fragment = cmp.Or(u.Path, "/"), ""
	return u, nil
}

// parseLater has a value parsed when all flags are there: package flag shows the values that it cannot parse.
func (o *options) parseLater(parse func(string) error) func(string) error {
	return func(s string) error {
		o.later = append(o.later, func() error { return parse(s) })
		return nil
	}
}

func (o *options) urlFlag(into **url.URL) func(string) error {
	return o.parseLater(func(s string) (err error) {
		*into, err = parseURL(s)
		return err
	})
}

func (o *options) effectsFlag(s string) error {
	if strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") {
		return o.urlFlag(&o.EffectsURL)(s)
	}
	o.Effects = hook.Command(s)
	return nil
}

func (o *options) expectFlag(file string) error {
	text, err := os.ReadFile(file)
	if err == nil {
		o.expected, err = parseExpected(string(text))
	}
	return err
}

func (o *options) headerFlag(flag string, into *[]ask.Field) func(string) error {
	return o.parseLater(func(s string) error {
		name, value, ok := strings.Cut(s, ":")
		if !ok || strings.TrimSpace(name) == "" || strings.ContainsAny(s, "\r\n") {
			return errors.New(flag + ": want 'Name: value'")
		}
		*into = append(*into, ask.Field{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)})
		return nil
	})
}

func bodyFlag(into *string) func(string) error {
	return func(s string) error {
		file, isFile := strings.CutPrefix(s, "@")
		if !isFile {
			*into = s
			return nil
		}
		content, err := os.ReadFile(file)
		*into = string(content)
		return err
	}
}

func queryFlag(into *[]string) func(string) error {
	return func(s string) error {
		if *into = append(*into, s); s == "" {
			return errors.New("want a query, such as delay=1s")
		}
		return nil
	}
}

func listFlag(into *[]string) func(string) error {
	return func(s string) error {
		*into = append(*into, strings.FieldsFunc(s, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' })...)
		return nil
	}
}

// statusFlag parses in-flight=409,425.
func (o *options) statusFlag(s string) error {
	kind, list, _ := strings.Cut(s, "=")
	into, ok := map[string]*[]int{
		"missing": &o.Statuses.Missing, "invalid": &o.Statuses.Invalid, "reused": &o.Statuses.Reused, "in-flight": &o.Statuses.InFlight,
	}[kind]
	if !ok {
		return fmt.Errorf("%q is none of missing, invalid, reused, in-flight", kind)
	}
	var statuses []int
	for _, word := range strings.Split(list, ",") {
		status, err := strconv.Atoi(word)
		if err != nil || status < 400 || status > 599 {
			return fmt.Errorf("%q is no status of a refusal", word)
		}
		statuses = append(statuses, status)
	}
	*into = statuses
	return nil
}
