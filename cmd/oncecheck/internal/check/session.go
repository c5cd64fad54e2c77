// Package check asks: it has one function for each row of package plan, and what these functions share. A function sends
// requests and compares; what it cannot see it reports as not asked.
package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
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

	Slow    string   // a query that makes the server take about a second
	Fail    string   // a query that makes the server fail
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

// Statuses are the statuses of the refusals.
type Statuses struct{ Missing, Invalid, Reused, InFlight []int }

// Draft07 returns the statuses of the draft.
func Draft07() Statuses {
	return Statuses{Missing: []int{400}, Invalid: []int{400}, Reused: []int{422}, InFlight: []int{409}}
}

// Session is a run against one server. Its checks run one after the other.
type Session struct {
	Config
	random *rand.Rand
	n      int64 // of the last operation
	bare   bool  // keys go without quotes: the server does not take them with quotes

	ids      idPaths       // what tells two runs apart in responses
	lag      time.Duration // how long an effect took to be counted
	slow     time.Duration // how long the server took with Slow; 0: not tried yet
	refusals []refusal     // for the checks of refusals
	shared   shared        // what several checks look at
}

// refusal is a response that refused a request because of its key.
type refusal struct {
	kind     string // such as "in flight"
	exchange ask.Exchange
	before   []ask.Exchange // with the same key, without which there would be none
}

// NewSession returns a session that has asked nothing yet.
func NewSession(cfg Config) *Session {
	return &Session{Config: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), n: 1000, shared: shared{trials: map[string]trial{}, unasked: map[string]string{}}}
}

// CountsEffects reports whether effects are counted, and not only told by ids.
func (s *Session) CountsEffects() bool { return s.EffectsURL != nil || s.Effects.Given() }

// SeesEffects reports whether a second run can be told from a replay.
func (s *Session) SeesEffects() bool { return s.CountsEffects() || len(s.ids) > 0 }

// operation returns a new operation.
func (s *Session) operation() ask.Operation {
	s.n++
	return ask.Operation{N: s.n, Key: ask.UUID(), UUID: ask.UUID()}
}

// request returns the operation as a request to the first instance.
func (s *Session) request(op ask.Operation) ask.Request {
	r := ask.Request{Method: s.Method, URL: expandURL(s.URL, op), Key: op.Key, Body: []byte(op.Expand(s.Body))}
	hasType := false
	for _, f := range s.Header {
		r.Header = append(r.Header, ask.Field{Name: f.Name, Value: op.Expand(f.Value)})
		hasType = hasType || strings.EqualFold(f.Name, "Content-Type")
	}
	if !hasType && len(r.Body) > 0 {
		r.Header = append(r.Header, ask.Field{Name: "Content-Type", Value: contentType(s.Body)})
	}
	return r.With(s.KeyHeader, s.spell(op.Key))
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
	expanded.Path, expanded.RawQuery = op.Expand(u.Path), op.Expand(u.RawQuery)
	expanded.RawPath = ""
	return &expanded
}

// spell returns the key as it stands in the header.
func (s *Session) spell(key string) string {
	if s.bare {
		return key
	}
	return `"` + key + `"`
}

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
	for _, f := range s.User2 {
		r.Header = append(slices.Clone(r.Header), ask.Field{Name: f.Name, Value: op.Expand(f.Value)})
	}
	r.Second = true
	return r
}

// Start finds out whether the server can be asked at all: a plain operation is a success, and is counted as one effect.
// It also learns how ids stand in responses.
func (s *Session) Start(ctx context.Context) error {
	if err := s.firstOperation(ctx); err != nil {
		return err
	}
	return s.learnIDs(ctx)
}

// sendPatiently sends a request, and again while the server is too busy for it: a rate limit, or a slow machine, is no
// fault.
func (s *Session) sendPatiently(ctx context.Context, r ask.Request) ask.Exchange {
	deadline := time.Now().Add(s.Patience)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		e := s.Client.Do(ctx, r)
		if !isBusy(e) || time.Now().Add(wait).After(deadline) || pause(ctx, wait) != nil {
			return e
		}
	}
}

// isBusy reports whether the server says that it has no time now.
func isBusy(e ask.Exchange) bool {
	if e.Response == nil || e.Response.Header.Get("X-Should-Retry") == "false" {
		return false
	}
	switch e.Response.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// firstOperation sends an operation with its key in quotes and, if that is refused, one without.
func (s *Session) firstOperation(ctx context.Context) error {
	before, uncounted := s.count(ctx)
	first := s.sendPatiently(ctx, s.request(s.operation()))
	if r := first.Response; r != nil && r.Status >= 400 && r.Status < 500 {
		s.bare = true
		if second := s.sendPatiently(ctx, s.request(s.operation())); second.Success() {
			first = second
		} else {
			s.bare = false
		}
	}
	if !first.Success() {
		return fmt.Errorf("%s %s must be a success before anything can be asked: %s%s\n%s", s.Method, s.URL.Redacted(), first, excerpt(first), advice(first))
	}
	if status := first.Response.Status; status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect {
		return fmt.Errorf("%s %s is sent elsewhere: %s. Give that URL: %q", s.Method, s.URL.Redacted(), first, first.Response.Header.Get("Location"))
	}
	if uncounted != nil { // said only now: if the server is down, that is the better reason
		return fmt.Errorf("the effects cannot be counted: %w\nCheck -effects: it is a command for sh, or a URL, which is asked with the headers of -H", uncounted)
	}
	if !s.CountsEffects() {
		return nil
	}
	began := time.Now()
	after, err := s.awaitCount(ctx, before+1)
	switch {
	case err != nil:
		return fmt.Errorf("the effects cannot be counted: %w", err)
	case after != before+1:
		return fmt.Errorf("the effects went from %d to %d with one successful request: they must go up by one (is the list that is counted cut to a page?)", before, after)
	}
	s.lag = time.Since(began)
	return nil
}

// advice says what to do if the request is no success.
func advice(e ask.Exchange) string {
	if e.Response == nil {
		return "Is the server running, and is this its address? Try the request with curl first."
	}
	switch status := e.Response.Status; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "Give the credentials of a user who may do this: -H 'Authorization: Bearer ...', or -H 'Cookie: ...'."
	case status == http.StatusNotFound:
		return "Is the path right? Give the URL of a request that creates something, as you would give it to curl."
	case status == http.StatusMethodNotAllowed:
		return "Give the method of a request that creates something: -X PUT, for example."
	case status == http.StatusTooManyRequests:
		return "Raise the server's rate limit for this run."
	case status >= 500:
		return "The server's log should say why."
	case len(e.Request.Body) == 0:
		return "Does the request need a body? Give it: -d '{\"amount\":{{n}}}', and its type with -H 'Content-Type: ...' unless it is JSON."
	}
	return "Is the request valid, and new each time? In -d, {{n}} differs from operation to operation, and {{uuid}} from run to run as well."
}

// excerpt returns the beginning of the response's body, for an error.
func excerpt(e ask.Exchange) string {
	if e.Response == nil || len(e.Response.Body) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.200q", e.Response.Body)
}

// learnIDs sends three operations that differ in their key alone.
func (s *Session) learnIDs(ctx context.Context) error {
	op := s.operation()
	var seen []*ask.Response
	for range 3 {
		op.Key = ask.UUID()
		e := s.sendPatiently(ctx, s.request(op))
		if errors.Is(e.Err, context.Canceled) {
			return e.Err
		}
		if !e.Success() {
			return nil // the service does not take equal orders: only -effects can tell
		}
		seen = append(seen, e.Response)
	}
	s.ids = findIDs(seen)
	return nil
}
