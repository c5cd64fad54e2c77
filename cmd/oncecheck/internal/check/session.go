// Package check asks. Its table has a row for each check: what it asserts, how strongly, which text says so, what a failure
// means for a customer, and the function that asks. A function sends requests and compares; what it cannot see it reports
// as not asked.
package check

import (
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/hook"
)

// Config is what a run is given. URL, Method, KeyHeader and Client are required.
type Config struct {
	Client *ask.Client

	URL      *url.URL
	Also     *url.URL // a second instance of the service, or nil
	OtherURL *url.URL // another route that takes the same request, or nil

	Method    string
	Header    []ask.Field // templates
	User2     []ask.Field // replaces the lines of the same names
	Body      string      // a template
	OtherBody string      // a template of another request; empty: Body with other values
	BadBody   string      // a template of a request that the server refuses; empty: a JSON body that is cut
	KeyHeader string
	KeyFormat string // how the key is written there, a template; empty: in quotes or, if the server refuses that, without

	Slow    []string // queries that make the server take about a second
	Fail    []string // queries that make the server fail
	Samples []string // queries whose responses are replayed as well

	EffectsURL *url.URL // counts effects, with the headers of the first user
	Effects    hook.Command
	Restart    hook.Command
	StoreDown  hook.Command
	StoreUp    hook.Command

	Statuses Statuses
	Patience time.Duration // how long a request is repeated until it is answered
	Seed     uint64
}

// Session is a run against one server. Its checks run one after the other.
type Session struct {
	Config
	random  *rand.Rand
	n       int64 // of the last operation
	secrets secrets

	usual      int                      // the status of the first operation
	equalIsOne bool                     // the same body under another key has no effect, and is no replay
	ids        idPaths                  // what tells two runs apart in responses
	noIDs      string                   // why there are none, if it is not for the responses
	lag        time.Duration            // how long an effect took to be counted
	slow       map[string]time.Duration // how long the server took with each of Slow
	restless   bool                     // a key did not come to rest
	refusals   []refusal                // for the checks of refusals
	parts      map[string]any           // what several checks look at, see memo
}

// The values of {{n}} begin at random between these, so that no run has those of an earlier one. Many APIs take no amount of
// more than eight digits.
const lowestN, highestN = 100_000, 90_000_000

// NewSession returns a session that has asked nothing yet.
func NewSession(cfg Config) *Session {
	return &Session{
		Config: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), n: lowestN + rand.Int64N(highestN-lowestN),
		secrets: newSecrets(cfg.Header, cfg.User2), slow: map[string]time.Duration{}, parts: map[string]any{},
	}
}

// countsEffects reports whether effects are counted, and not only told by ids.
func (s *Session) countsEffects() bool { return s.EffectsURL != nil || s.Effects.Given() }

// operation returns a new operation.
func (s *Session) operation() ask.Operation {
	s.n++
	return ask.Operation{N: s.n, Key: ask.UUID(), UUID: ask.UUID()}
}

// request returns the operation as a request to the first instance.
func (s *Session) request(op ask.Operation) ask.Request {
	r := ask.Request{Method: s.Method, URL: expandURL(s.URL, op), Key: op.Key, Body: []byte(op.Expand(s.Body))}
	if len(r.Body) > 0 && !slices.ContainsFunc(s.Header, func(f ask.Field) bool { return strings.EqualFold(f.Name, "Content-Type") }) {
		r.Header = []ask.Field{{Name: "Content-Type", Value: contentType(s.Body)}}
	}
	r.Header = append(r.Header, expand(s.Header, op, false)...)
	return r.With(s.KeyHeader, op.Expand(s.KeyFormat))
}

// fresh returns the request of a new operation.
func (s *Session) fresh() ask.Request { return s.request(s.operation()) }

// requestWith returns the operation as a request with a key that is made of its own.
func (s *Session) requestWith(op ask.Operation, key string) ask.Request {
	return s.request(op).With(s.KeyHeader, ask.Operation{Key: key}.Expand(s.KeyFormat))
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
func at(r ask.Request, u *url.URL, op ask.Operation) ask.Request {
	query := r.URL.RawQuery
	r.URL = expandURL(u, op)
	if r.URL.RawQuery == "" {
		r.URL.RawQuery = query
	}
	return r
}

// asUser2 returns the request with the headers of the second user.
func (s *Session) asUser2(r ask.Request, op ask.Operation) ask.Request {
	for _, f := range s.User2 {
		r = r.Without(f.Name)
	}
	r.Header, r.Second = slices.Concat(r.Header, expand(s.User2, op, true)), true
	return r
}

// expand returns the headers of the first or the second user.
func expand(templates []ask.Field, op ask.Operation, second bool) (expanded []ask.Field) {
	for _, f := range templates {
		expanded = append(expanded, ask.Field{Name: f.Name, Value: op.Expand(f.Value), Variable: variable(f, second)})
	}
	return expanded
}
