package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
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

	only, skip, expected []string // ids; expected are the known failures
	junit, markdown      string
	profile              profile
	timeout              time.Duration
	parallel             int
}

const usage = `usage: oncecheck [flags] URL

Asks the server at URL whether a request that arrives twice with one Idempotency-Key takes effect once. It sends
about 1,500 requests: use a database that may fill up. Begin with these flags, as for curl:

  oncecheck -H 'Authorization: Bearer ann' -d '{"amount":{{n}}}' -effects http://127.0.0.1:8080/payments \
    http://127.0.0.1:8080/payments

The manual: https://pkg.go.dev/github.com/onceguard/onceguard/cmd/oncecheck

`

// given has the values of the flags that are parsed when all are there: package flag shows the values that it cannot parse.
type given struct {
	headers, headers2, statuses []string
	target, also                string
	effects, profile            string
	only, skip, known           string
	err                         error // the first
}

// each returns the function of a flag that may be repeated.
func each(values *[]string) func(string) error {
	return func(s string) error {
		*values = append(*values, s)
		return nil
	}
}

// define defines the flags.
func (o *options) define(set *flag.FlagSet, g *given) {
	text, also := set.StringVar, set.Func
	text(&o.Method, "X", "POST", "`method` of the request")
	also("H", "`header` of the request, 'Name: value'; repeatable", each(&g.headers))
	also("H2", "`header` of a second user, in place of -H of that name; repeatable", each(&g.headers2))
	text(&o.Body, "d", "", "`body` of the request, or @FILE; may contain {{n}}, {{uuid}}, {{key}}")
	text(&o.OtherBody, "other-d", "", "`body` of another request (default: -d with another {{n}})")
	text(&o.BadBody, "bad-d", "", "`body` that the server refuses (default: JSON that is cut)")
	text(&o.KeyHeader, "key-header", "Idempotency-Key", "`name` of the key's header")
	text(&o.KeyFormat, "key", "", "`format` of the key there, with {{key}} (default: in quotes or, if refused, without)")
	also("slow", "`query` that makes the server take about a second; repeatable", each(&o.Slow))
	also("fail", "`query` that makes the server fail; repeatable", each(&o.Fail))
	also("sample", "`query` whose response is of another kind; repeatable", each(&o.Samples))
	text(&g.effects, "effects", "", "`command` or URL that counts what happened: a number or a JSON array")
	text(&g.also, "also", "", "`URL` of a second instance of the service")
	text((*string)(&o.Restart), "restart", "", "`command` that kills the server and starts it again")
	text((*string)(&o.StoreDown), "store-down", "", "`command` that stops the server's store of keys")
	text((*string)(&o.StoreUp), "store-up", "", "`command` that starts it again")
	text(&g.only, "only", "", "`ids` of the checks to run, with commas; an id may end in *")
	text(&g.skip, "skip", "", "`ids` of the checks to leave out")
	text(&g.known, "expect", "", "`file` of known failures, one id a line")
	text(&g.profile, "profile", "", "`name` of an API whose rules apply: acp, ucp, stripe")
	also("status", "`kind=status,...` of refusals: missing, invalid, reused, in-flight; repeatable", each(&g.statuses))
	text(&o.junit, "junit", "", "also write JUnit's XML to `file`")
	text(&o.markdown, "markdown", "", "also append Markdown to `file`")
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
}

// parse parses the command line. If it asks for help, that goes to w.
func parse(args []string, w io.Writer) (*options, error) {
	o, g := new(options), new(given)
	set := flag.NewFlagSet("oncecheck", flag.ContinueOnError)
	set.SetOutput(io.Discard) // run prints the error
	set.Usage = func() {}
	o.define(set, g)
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
	g.target = set.Arg(0)
	o.take(g)
	return o, cmp.Or(g.err, o.check())
}

// take takes the values that are not only text.
func (o *options) take(g *given) {
	o.profile = g.profileOf()
	o.Statuses = g.statusesOf(o.profile)
	o.Header, o.User2 = g.fields("-H", g.headers), g.fields("-H2", g.headers2)
	var err error
	o.URL, err = parseURL(g.target)
	g.failIf(err)
	o.Also = g.url(g.also)
	if strings.HasPrefix(g.effects, "http://") || strings.HasPrefix(g.effects, "https://") {
		o.EffectsURL = g.url(g.effects)
	} else {
		o.Effects = check.Command(g.effects)
	}
	o.KeyFormat = cmp.Or(o.KeyFormat, o.profile.key)
	for _, body := range []*string{&o.Body, &o.OtherBody, &o.BadBody} {
		if name, isFile := strings.CutPrefix(*body, "@"); isFile {
			*body = g.file(name)
		}
	}
	isComma := func(c rune) bool { return c == ',' || c == ' ' || c == '\n' }
	o.only, o.skip = strings.FieldsFunc(g.only, isComma), strings.FieldsFunc(g.skip, isComma)
	if g.known != "" {
		known, err := parseExpected(g.file(g.known))
		o.expected = known
		g.failIf(err)
	}
	all := []string{o.Body, o.OtherBody, o.BadBody, o.KeyFormat, g.target}
	for _, template := range slices.Concat(all, g.headers, g.headers2) {
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
	case slices.Contains(slices.Concat(o.Slow, o.Fail, o.Samples), ""):
		return errors.New("-slow, -fail and -sample want a query, such as delay=1s")
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

// url parses the URL of a flag, if that is given.
func (g *given) url(text string) *url.URL {
	if text == "" {
		return nil
	}
	u, err := parseURL(text)
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

func (g *given) fields(flag string, headers []string) (fields []ask.Field) {
	for _, s := range headers {
		name, value, ok := strings.Cut(s, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.ContainsAny(s, "\r\n") {
			g.failIf(fmt.Errorf("%s: want 'Name: value'", flag))
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

// statusesOf returns those of the profile, but for what -status has, as in in-flight=409,425.
func (g *given) statusesOf(p profile) check.Statuses {
	all := check.Draft07()
	all.Reused = []int{p.reused}
	kinds := map[string]*[]int{
		"missing": &all.Missing, "invalid": &all.Invalid, "reused": &all.Reused, "in-flight": &all.InFlight,
	}
	for _, s := range g.statuses {
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
