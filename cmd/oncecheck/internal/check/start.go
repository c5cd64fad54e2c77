package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// Start finds out whether the server can be asked at all: two plain operations are successes, and the first is counted as
// one effect; so is one on the second instance. It also learns how ids stand in responses.
func (s *Session) Start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.firstOperation, s.alsoRuns, s.learnIDs} {
		if err := step(ctx); err != nil {
			return errors.New(s.secrets.hide(err.Error()))
		}
	}
	return nil
}

// sendPatiently sends a request, and again while the server is too busy for it: a rate limit, or a slow machine, is no
// fault.
func (s *Session) sendPatiently(ctx context.Context, r ask.Request) ask.Exchange {
	return s.repeatWhile(ctx, r, s.Patience, isBusy)
}

// firstWait is the pause before a request is repeated. It doubles, up to a second.
const firstWait = 50 * time.Millisecond

// repeatWhile sends a request until its answer is another, and for no longer than the limit. The last exchange is returned.
func (s *Session) repeatWhile(ctx context.Context, r ask.Request, limit time.Duration, goOn func(ask.Exchange) bool) ask.Exchange {
	began := time.Now()
	for wait := firstWait; ; wait = min(2*wait, time.Second) {
		waited := time.Since(began)
		e := s.Client.Do(ctx, r)
		if !goOn(e) || time.Since(began)+wait > limit || pause(ctx, wait) != nil {
			e.Request.Waited = waited
			return e
		}
	}
}

// firstOperation sends an operation. If it is refused, it does so again with the key written in another way.
func (s *Session) firstOperation(ctx context.Context) error {
	before, uncounted := s.count(ctx)
	first := s.firstSpelled(ctx)
	if !first.Success() {
		return fmt.Errorf("%s %s must be a success before anything can be asked: %s%s\n%s", s.Method, s.URL.Redacted(), first, s.excerpt(first), s.advice(first))
	}
	if has([]int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}, first) {
		return fmt.Errorf("%s %s is sent elsewhere: %s. Give that URL: %q", s.Method, s.URL.Redacted(), first, first.Response.Header.Get("Location"))
	}
	s.usual = first.Response.Status
	if uncounted != nil { // said only now: if the server is down, that is the better reason
		return fmt.Errorf("the effects cannot be counted: %w\n%s", uncounted, cmp.Or(aboutTLS(uncounted),
			"Check -effects: it is a command for sh, or a URL with http:// or https://, which is asked with the headers of -H"))
	}
	if !s.countsEffects() {
		if location := first.Response.Header.Get("Location"); login.MatchString(location) {
			return fmt.Errorf("%s %s is sent to a login: %q. If that answers a success, give -effects\n%s", s.Method, s.URL.Redacted(), location, credentials)
		}
		return nil
	}
	began := time.Now()
	after, err := s.awaitCount(ctx, before+1)
	switch {
	case err != nil:
		return uncountable(err)
	case after != before+1:
		hint := "is the list that is counted cut to a page?"
		if after > before {
			hint = "does anything else add to them, or is each counted twice?"
		}
		return fmt.Errorf("the effects went from %d to %d with one successful request: they must go up by one (%s)", before, after, hint)
	}
	s.lag = time.Since(began)
	return nil
}

// alsoRuns sends an operation to the second instance: one that does nothing, or something else, shows nothing.
func (s *Session) alsoRuns(ctx context.Context) error {
	if s.Also == nil {
		return nil
	}
	before, err := s.count(ctx)
	if err != nil {
		return uncountable(err)
	}
	op := s.operation()
	e := s.sendPatiently(ctx, at(s.request(op), s.Also, op))
	if !e.Success() || isElsewhere(s.usual, e) {
		return fmt.Errorf("%s %s (-also) must be a success, as the first instance's is: %s%s\n%s", s.Method, s.Also.Redacted(), e, s.excerpt(e), s.advice(e))
	}
	if !s.countsEffects() {
		return nil
	}
	switch after, err := s.awaitCount(ctx, before+1); {
	case err != nil:
		return uncountable(err)
	case after <= before:
		return fmt.Errorf("%s %s (-also) was a success, and -effects does not count it: is it an instance of the same service, with the same database?", s.Method, s.Also.Redacted())
	}
	return nil
}

func uncountable(err error) error { return fmt.Errorf("the effects cannot be counted: %w", err) }

// firstSpelled sends one operation until it is a success, with each way to write its key. It returns the first refusal if none
// is. The body stays the same: a server that has refused the key has not used it.
func (s *Session) firstSpelled(ctx context.Context) (first ask.Exchange) {
	op, formats := s.operation(), []string{quoted, bare}
	if s.KeyFormat != "" {
		formats = []string{s.KeyFormat}
	}
	for i, format := range formats {
		s.KeyFormat = format
		e := s.sendPatiently(ctx, s.request(op))
		if e.Success() {
			return e
		}
		if i == 0 {
			first = e
		}
		if e.Response == nil {
			break
		}
	}
	return first
}

// advice says what to do if the request is no success.
func (s *Session) advice(e ask.Exchange) string {
	if e.Response == nil {
		return cmp.Or(aboutTLS(e.Err), "Is the server running, and is this its address? Try the request with curl first.")
	}
	body := strings.ToLower(string(e.Response.Body))
	switch status := e.Response.Status; {
	case strings.Contains(body, "csrf") || strings.Contains(body, "forgery") || strings.Contains(body, "authenticity") || status == 419:
		return csrf
	case status == http.StatusUnauthorized:
		return credentials
	case status == http.StatusForbidden:
		return credentials + " Or: " + csrf
	case status == http.StatusNotFound:
		return "Is the path right? Give the URL of a request that creates something, as you would give it to curl."
	case status == http.StatusMethodNotAllowed:
		return "Give the method of a request that creates something: -X PUT, for example."
	case status == http.StatusTooManyRequests:
		return "Raise the server's rate limit for this run."
	case status >= 500:
		return "The server's log should say why. If it refuses the key, -key says how a key is written."
	case len(e.Request.Body) == 0:
		return "Does the request need a body? Give it: -d '{\"amount\":{{n}}}', and its type with -H 'Content-Type: ...' unless it is JSON."
	}
	return "Is the request valid, and new each time? In -d, {{n}} and {{uuid}} differ from operation to operation. If the key is refused, -key says how it is written."
}

// aboutTLS says what to do if there is no connection with TLS, or nothing.
func aboutTLS(err error) string {
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, new(x509.HostnameError)):
		return "The server's certificate is for another name. Give the URL with that name or, if the server is your own, add -insecure."
	case errors.As(err, &untrusted):
		return "Nobody vouches for the server's certificate. If it is your own, add -insecure."
	case errors.As(err, new(tls.RecordHeaderError)):
		return "The server does not speak TLS here: give the URL with http://."
	}
	return ""
}

// login matches a Location whose path is that of a login.
var login = regexp.MustCompile(`(?i)^[^?#]*\b(log[-_]?in|sign[-_]?in|sso|auth|oauth2?)\b`)

const (
	credentials = "Give the credentials of a user who may do this: -H 'Authorization: Bearer ...', or -H 'Cookie: ...'."
	csrf        = "The server may protect forms against CSRF: give the token and the cookie of a session with -H, or switch this protection off for the run."
)

// excerpt returns the beginning of the response's body, for an error.
func (s *Session) excerpt(e ask.Exchange) string {
	if e.Response == nil || len(e.Response.Body) == 0 {
		return ""
	}
	return ": " + s.shown(string(e.Response.Body), 200)
}

// learnIDs sends three operations that differ in their key alone or, if the service does not take equal orders, in all.
func (s *Session) learnIDs(ctx context.Context) error {
	first := s.operation()
	before, err := s.count(ctx)
	if err != nil {
		return uncountable(err)
	}
	seen, operations := []*ask.Response{}, []ask.Operation{}
	for isSame := true; len(seen) < 3; {
		op := s.operation()
		if isSame {
			op.N, op.UUID = first.N, first.UUID
		}
		e := s.sendPatiently(ctx, s.request(op))
		switch {
		case e.Success():
			seen, operations = append(seen, e.Response), append(operations, op)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(seen) == 0:
			return fmt.Errorf("one operation was a success, and the next, with another key, was none: %s%s\n%s", e, s.excerpt(e), s.advice(e))
		case !isSame:
			return nil
		default:
			isSame = false
			s.noIDs = fmt.Sprintf("give -effects: the service does not take one body under two keys (%s), and its responses have no id", e)
		}
	}
	if s.countsEffects() && s.noIDs == "" {
		n, err := s.awaitCount(ctx, before+2)
		if err != nil {
			return uncountable(err)
		}
		s.equalIsOne = n < before+2 && !slices.ContainsFunc(seen, isReplay) // a replay is for the key, or for what is taken for one
	}
	s.ids = findIDs(seen)
	if s.noIDs != "" {
		s.ids = slices.DeleteFunc(s.ids, func(path string) bool { return !isID(path) || echoes(path, seen, operations) })
	}
	return nil
}
