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
)

// options has the values of the command line.
type options struct {
	check.Config

	list, strict, atMostOnce, json, insecure, mayTest, verbose bool

	only, skip      []string
	expected        []string // the known failures
	junit, markdown string
	profile         profile
	timeout         time.Duration
	parallel        int
}

const usage = `usage: oncecheck [flags] URL

Asks the server at URL whether a request that arrives twice with one Idempotency-Key takes effect once. It sends
about 1,500 requests: use a database that may fill up. Begin with these flags, as for curl:

  oncecheck -H 'Authorization: Bearer ann' -d '{"amount":{{n}}}' -effects http://127.0.0.1:8080/payments \
    http://127.0.0.1:8080/payments

The manual: https://pkg.go.dev/github.com/onceguard/onceguard/cmd/oncecheck

`

// texts are the flags whose values are parsed when all are there: package flag shows the values that it cannot parse.
var texts = map[string]string{
	"X":          "`method` of the request (default POST)",
	"H":          "`header` of the request, 'Name: value'; repeatable",
	"H2":         "`header` of a second user, in place of -H of that name; repeatable",
	"d":          "`body` of the request, or @FILE; may contain {{n}}, {{uuid}}, {{key}}",
	"other-d":    "`body` of another request (default: -d with another {{n}})",
	"bad-d":      "`body` that the server refuses (default: JSON that is cut)",
	"key-header": "`name` of the key's header (default Idempotency-Key)",
	"key":        "`format` of the key there, with {{key}} (default: in quotes or, if refused, without)",
	"slow":       "`query` that makes the server take about a second; repeatable",
	"fail":       "`query` that makes the server fail; repeatable",
	"sample":     "`query` whose response is of another kind; repeatable",
	"effects":    "`command` or URL that counts what happened: a number or a JSON array",
	"also":       "`URL` of a second instance of the service",
	"other-url":  "`URL` of another route that takes the same request",
	"restart":    "`command` that kills the server and starts it again",
	"store-down": "`command` that stops the server's store of keys",
	"store-up":   "`command` that starts it again",
	"only":       "`ids` of the checks to run, with commas; an id may end in *",
	"skip":       "`ids` of the checks to leave out",
	"expect":     "`file` of known failures, one id a line",
	"profile":    "`name` of an API whose rules apply: acp, ucp, stripe",
	"status":     "`kind=status,...` of refusals: missing, invalid, reused, in-flight; repeatable",
	"junit":      "also write JUnit's XML to `file`",
	"markdown":   "also append Markdown to `file`",
}

// parse parses the command line. If it asks for help, that goes to w.
func parse(args []string, w io.Writer) (*options, error) {
	o, g := new(options), &given{texts: map[string][]string{}}
	set := flag.NewFlagSet("oncecheck", flag.ContinueOnError)
	set.SetOutput(io.Discard) // run prints the error
	set.Usage = func() {}
	for name, usage := range texts {
		set.Func(name, usage, func(s string) error {
			g.texts[name] = append(g.texts[name], s)
			return nil
		})
	}
	set.BoolVar(&o.insecure, "insecure", false, "do not verify the server's certificate")
	set.BoolVar(&o.mayTest, "i-may-test-this", false, "ask a host on the public internet: you are allowed to")
	set.BoolVar(&o.list, "list", false, "list the checks and exit")
	set.BoolVar(&o.strict, "strict", false, "failures of a SHOULD count")
	set.BoolVar(&o.atMostOnce, "at-most-once", false, "nothing may run twice even after a crash")
	set.BoolVar(&o.verbose, "verbose", false, "tell every failure in full")
	set.BoolVar(&o.json, "json", false, "print JSON instead of the table")
	set.DurationVar(&o.timeout, "timeout", 10*time.Second, "`time` for one response")
	set.DurationVar(&o.Patience, "patience", time.Minute, "`time` for which a request is repeated until it is answered")
	set.IntVar(&o.parallel, "parallel", 50, "requests at a time")
	set.Uint64Var(&o.Seed, "seed", rand.Uint64N(1_000_000), "`number` that decides the order of load/shuffled")
	err := set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(w, usage)
		set.SetOutput(w)
		set.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (oncecheck -h explains the flags)", err)
	case o.list:
		return o, nil
	case set.NArg() != 1:
		return nil, errors.New("want one URL behind the flags, that of a request which creates something")
	}
	g.texts[""] = set.Args()
	o.take(g)
	return o, cmp.Or(g.err, o.check())
}

// given has the values of flags, and what is wrong with the first that is.
type given struct {
	texts map[string][]string
	err   error
}

// take takes the values.
func (o *options) take(g *given) {
	o.profile = g.profile()
	o.Statuses = g.statuses(o.profile)
	o.Header, o.User2 = g.headers("H"), g.headers("H2")
	o.URL, o.Also, o.OtherURL = g.url(""), g.url("also"), g.url("other-url")
	if effects := g.last("effects"); strings.HasPrefix(effects, "http://") || strings.HasPrefix(effects, "https://") {
		o.EffectsURL = g.url("effects")
	} else {
		o.Effects = check.Command(effects)
	}
	o.Method, o.KeyHeader = cmp.Or(g.last("X"), "POST"), cmp.Or(g.last("key-header"), "Idempotency-Key")
	o.KeyFormat = cmp.Or(g.last("key"), o.profile.key)
	o.Body, o.OtherBody, o.BadBody = g.body("d"), g.body("other-d"), g.body("bad-d")
	o.Slow, o.Fail, o.Samples = g.queries("slow"), g.queries("fail"), g.queries("sample")
	o.Restart = check.Command(g.last("restart"))
	o.StoreDown, o.StoreUp = check.Command(g.last("store-down")), check.Command(g.last("store-up"))
	o.only, o.skip = g.list("only"), g.list("skip")
	o.junit, o.markdown = g.last("junit"), g.last("markdown")
	if file := g.last("expect"); file != "" {
		known, err := parseExpected(g.file(file))
		o.expected = known
		g.failIf(err)
	}
	for _, template := range slices.Concat(g.texts[""], g.texts["H"], g.texts["H2"], []string{o.Body, o.OtherBody, o.BadBody, o.KeyFormat}) {
		g.failIf(ask.CheckTemplate(template))
	}
}

// check returns what does not fit together.
func (o *options) check() error {
	isOther := func(f ask.Field) bool { return !slices.Equal(values(o.User2, f), values(o.Header, f)) }
	switch {
	case o.KeyFormat != "" && !strings.Contains(o.KeyFormat, "{{key}}"):
		return errors.New("-key must contain {{key}}")
	case (o.StoreDown == "") != (o.StoreUp == ""):
		return errors.New("-store-down and -store-up belong together")
	case o.User2 != nil && !slices.ContainsFunc(o.User2, isOther):
		return errors.New("-H2 says what -H says: give what is another user's")
	case o.parallel < 1 || o.timeout <= 0 || o.Patience <= 0:
		return errors.New("-parallel, -timeout and -patience must be above 0")
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

// failIf remembers the first error.
func (g *given) failIf(err error) { g.err = cmp.Or(g.err, err) }

// last returns the last value, or nothing.
func (g *given) last(flag string) string {
	all := g.texts[flag]
	return strings.Join(all[max(0, len(all)-1):], "")
}

func (g *given) url(flag string) *url.URL {
	if len(g.texts[flag]) == 0 {
		return nil
	}
	u, err := parseURL(g.last(flag))
	g.failIf(err)
	return u
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
		// The URL is not shown: it may have a password.
		return nil, fmt.Errorf("the URL cannot be read: %w", failed.Err)
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

func (g *given) headers(flag string) (fields []ask.Field) {
	for _, s := range g.texts[flag] {
		name, value, ok := strings.Cut(s, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.ContainsAny(s, "\r\n") {
			g.failIf(fmt.Errorf("-%s: want 'Name: value'", flag))
		}
		fields = append(fields, ask.Field{Name: name, Value: value})
	}
	return fields
}

func (g *given) file(name string) string {
	content, err := os.ReadFile(name)
	g.failIf(err)
	return string(content)
}

func (g *given) body(flag string) string {
	s := g.last(flag)
	if file, isFile := strings.CutPrefix(s, "@"); isFile {
		return g.file(file)
	}
	return s
}

func (g *given) queries(flag string) []string {
	if slices.Contains(g.texts[flag], "") {
		g.failIf(fmt.Errorf("-%s: want a query, such as delay=1s", flag))
	}
	return g.texts[flag]
}

func (g *given) list(flag string) []string {
	return strings.FieldsFunc(strings.Join(g.texts[flag], ","), func(c rune) bool { return c == ',' || c == ' ' || c == '\n' })
}

// statuses returns those of the profile, but for what -status has, as in in-flight=409,425.
func (g *given) statuses(p profile) check.Statuses {
	all := check.Draft07()
	all.Reused = []int{p.reused}
	kinds := map[string]*[]int{
		"missing": &all.Missing, "invalid": &all.Invalid, "reused": &all.Reused, "in-flight": &all.InFlight,
	}
	for _, s := range g.texts["status"] {
		kind, list, _ := strings.Cut(s, "=")
		if kinds[kind] == nil {
			g.failIf(fmt.Errorf("-status: %q is none of missing, invalid, reused, in-flight", kind))
			continue
		}
		*kinds[kind] = nil
		for _, word := range strings.Split(list, ",") {
			status, err := strconv.Atoi(word)
			if err != nil || status < 400 || status > 599 {
				g.failIf(fmt.Errorf("-status: %q is no status of a refusal", word))
			}
			*kinds[kind] = append(*kinds[kind], status)
		}
	}
	return all
}
