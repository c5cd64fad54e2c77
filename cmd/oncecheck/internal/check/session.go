package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// Config is what a run is given. URL, Method, KeyHeader and Client are required.
type Config struct {
	Client *ask.Client

	URL  *url.URL
	Also *url.URL // a second instance of the service, or nil

	Method string
	Header []ask.Field // templates
	User2  []ask.Field // replaces the lines of the same names
	Body   string      // a template
	// A template of another request; empty: Body with other values.
	OtherBody string
	// A template of a request that the server refuses; empty: a JSON body that is cut.
	BadBody   string
	KeyHeader string
	// How the key is written there, a template; empty: in quotes or, if the server refuses that, without.
	KeyFormat string

	// Queries that make the server take about a second.
	Slow    []string
	Fail    []string // queries that make the server fail
	Samples []string // queries whose responses are replayed as well

	// Counts effects, with the headers of the first user.
	EffectsURL *url.URL
	Effects    Command
	Restart    Command
	StoreDown  Command
	StoreUp    Command

	Statuses Statuses
	// How long a request is repeated until it is answered.
	Patience time.Duration
}

// Session is a run against one server. Its checks run one after the other.
type Session struct {
	Config
	n       int64 // of the last operation
	secrets *strings.Replacer

	// The status of the first operation.
	usual int
	// The same body under another key has no effect, and is no replay.
	equalIsOne bool
	// What tells two runs apart in responses.
	ids idPaths
	// Why there are none, if the service takes no equal orders.
	noIDs string
	// How long an effect took to be counted.
	lag time.Duration
	// How long the server took with each of Slow.
	slow     map[string]time.Duration
	restless bool // a key did not come to rest
	// What several checks look at, see tell.
	parts map[string]any
}

// The values of {{n}} begin at random between these, so that no run has those of an earlier one. Many APIs take no amount of
// more than eight digits.
const lowestN, highestN = 100_000, 90_000_000

// NewSession returns a session that has asked nothing yet.
func NewSession(cfg Config) *Session {
	return &Session{
		Config: cfg, n: lowestN + rand.Int64N(highestN-lowestN),
		secrets: newSecrets(cfg.Header, cfg.User2), slow: map[string]time.Duration{}, parts: map[string]any{},
	}
}

// counts reports whether effects are counted, and not only told by ids.
func (s *Session) counts() bool { return s.EffectsURL != nil || s.Effects != "" }

// request returns the operation as a request to the first instance.
func (s *Session) request(op ask.Operation) ask.Request {
	r := ask.Request{Op: op, Method: s.Method, URL: expandURL(s.URL, op), Body: []byte(op.Expand(s.Body))}
	isType := func(f ask.Field) bool { return strings.EqualFold(f.Name, "Content-Type") }
	if len(r.Body) > 0 && !slices.ContainsFunc(s.Header, isType) {
		r.Header = []ask.Field{{Name: "Content-Type", Value: contentType(s.Body)}}
	}
	r.Header = append(r.Header, expand(s.Header, op, false)...)
	return r.With(s.KeyHeader, op.Expand(s.KeyFormat))
}

// fresh returns the request of a new operation.
func (s *Session) fresh() ask.Request {
	s.n++
	return s.request(ask.Operation{N: s.n, Key: ask.UUID(), UUID: ask.UUID()})
}

// keyed returns the request with a key that is made of its own.
func (s *Session) keyed(r ask.Request, key string) ask.Request {
	return r.With(s.KeyHeader, ask.Operation{Key: key}.Expand(s.KeyFormat))
}

// otherKey returns the request under a new key.
func (s *Session) otherKey(r ask.Request) ask.Request {
	r.Op.Key = ask.UUID()
	return s.request(r.Op)
}

// contentType guesses the type of a body without a Content-Type: JSON by its first byte, or a form.
func contentType(body string) string {
	if s := strings.TrimSpace(body); strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") {
		return "application/json"
	}
	return "application/x-www-form-urlencoded"
}

func expandURL(u *url.URL, op ask.Operation) *url.URL {
	expanded := *u
	expanded.Path, expanded.RawPath, expanded.RawQuery = op.Expand(u.Path), "", op.Expand(u.RawQuery)
	return &expanded
}

// quoted and bare are how keys are written if the user does not say it.
const quoted, bare = `"{{key}}"`, "{{key}}"

// at returns the request for another instance or route.
func at(r ask.Request, u *url.URL) ask.Request {
	query := r.URL.RawQuery
	r.URL = expandURL(u, r.Op)
	if r.URL.RawQuery == "" {
		r.URL.RawQuery = query
	}
	return r
}

// asUser2 returns the request with the headers of the second user.
func (s *Session) asUser2(r ask.Request) ask.Request {
	for _, f := range s.User2 {
		r = r.Without(f.Name)
	}
	r.Header = slices.Concat(r.Header, expand(s.User2, r.Op, true))
	return r
}

// expand returns the headers of the first or the second user.
func expand(templates []ask.Field, op ask.Operation, second bool) (expanded []ask.Field) {
	for _, f := range templates {
		f.Value, f.Variable = op.Expand(f.Value), variable(f, second)
		expanded = append(expanded, f)
	}
	return expanded
}

// Start finds out whether the server can be asked at all: plain operations are successes, and one is counted as one
// effect; so is one on the second instance. It also learns how ids stand in responses.
func (s *Session) Start(ctx context.Context) error {
	r := s.part(ctx, func(t *T) {
		first := firstSpelled(t)
		wantUsable(t, first)
		t.usual = first.Response.Status
		began := time.Now()
		wantCounted(t, t.fresh())
		t.lag = time.Since(began)
		if t.Also != nil {
			wantCounted(t, at(t.fresh(), t.Also))
		}
		learnIDs(t)
	})
	if r.Verdict != Held {
		return errors.New(s.secrets.Replace(r.Sentence))
	}
	return nil
}

// firstSpelled sends one operation until it is a success, with each way to write its key. It returns the first refusal if none
// is. The body stays the same: a server that has refused the key has not used it.
func firstSpelled(t *T) (first ask.Exchange) {
	op, formats := t.fresh().Op, []string{t.KeyFormat}
	if t.KeyFormat == "" {
		formats = []string{quoted, bare}
	}
	for _, t.KeyFormat = range formats {
		e := t.patient(t.request(op))
		if e.Success() {
			return e
		}
		if first.Request.URL == nil {
			first = e
		}
		if e.Response == nil {
			break
		}
	}
	return first
}

// login matches a Location whose path is that of a login.
var login = regexp.MustCompile(`(?i)^[^?#]*\b(log[-_]?in|sign[-_]?in|sso|auth|oauth2?)\b`)

// wantUsable ends the run unless the response is that of a plain operation.
func wantUsable(t *T, e ask.Exchange) {
	name := t.Method + " " + e.Request.URL.Redacted()
	t.skipIf(!e.Success(), "%s must be a success before anything can be asked: %s%s. %s", name, e, t.excerpt(e), advice(e))
	location := e.Response.Header.Get("Location")
	t.skipIf(has([]int{301, 307, 308}, e), "%s is sent elsewhere: %s. Give that URL: %q", name, e, location)
	isLogin := !t.counts() && login.MatchString(location)
	t.skipIf(isLogin, "%s is sent to a login: %q. If that is a success, give -effects. %s", name, location, credentials)
}

// wantCounted ends the run unless the request is a success, and counted once.
func wantCounted(t *T, r ask.Request) {
	w := t.watch()
	wantUsable(t, t.patient(r))
	if !t.counts() {
		return
	}
	after := w.count(w.before + 1)
	hint := "does anything else add to them, or is each counted twice?"
	if after <= w.before {
		hint = "is the list cut to a page, or is the instance one with another database?"
	}
	t.skipIf(after != w.before+1, "the effects went from %d to %d with one success of %s: they must go up by one (%s)",
		w.before, after, r.URL.Redacted(), hint)
}

const credentials = "Give the credentials of a user who may do this: -H 'Authorization: Bearer ...', or -H 'Cookie: ...'. " +
	"If it is protected against CSRF, give the token as well, or switch the protection off for the run."

// advice says what to do if the request is no success.
func advice(e ask.Exchange) string {
	switch {
	case e.Response == nil && strings.Contains(e.Err.Error(), "x509"):
		return "If the server is your own, add -insecure."
	case e.Response == nil:
		return "Is the server running, is this its address, and does it speak TLS as the URL says? Try the request with curl first."
	case has([]int{401, 403, 419}, e):
		return credentials
	case has([]int{404, 405}, e):
		return "Give the URL of a request that creates something, and its method, such as -X PUT."
	case e.Response.Status >= 500:
		return "The server's log should say why. If it refuses the key, -key says how a key is written."
	}
	return "Is the request valid, and new each time? In -d, {{n}} and {{uuid}} differ from operation to operation. " +
		"If the key is refused, -key says how it is written."
}

// excerpt returns the beginning of the response's body, for an error.
func (s *Session) excerpt(e ask.Exchange) string {
	if e.Response == nil || len(e.Response.Body) == 0 {
		return ""
	}
	return ": " + s.shown(string(e.Response.Body), 200)
}

// learnIDs sends three operations that differ in their key alone. A service that takes no equal orders has no ids here.
func learnIDs(t *T) {
	first, w := t.fresh(), t.watch()
	seen := make([]ask.Exchange, 3)
	for i := range seen {
		seen[i] = t.patient(t.otherKey(first))
		if e := seen[i]; i == 0 {
			t.skipIf(!e.Success(), "one operation was a success, and the next was none: %s%s. %s", e, t.excerpt(e), advice(e))
		} else if !e.Success() {
			t.noIDs = fmt.Sprintf("give -effects: the service does not take one body under two keys (%s)", e)
			return
		}
	}
	// A replay is for the key, or for what is taken for one.
	if t.counts() {
		marked := slices.ContainsFunc(seen, func(e ask.Exchange) bool { return isReplay(e.Response) })
		t.equalIsOne = w.count(w.before+2) < w.before+2 && !marked
	}
	t.ids = findIDs(seen)
}
