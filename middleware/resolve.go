package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// Resolution is what an operator has found out about a run whose outcome is unknown: [NothingHappened]; [Responded] for
// a request; [Returned] or [Failed] for a function, of package once. The zero value is refused.
type Resolution struct {
	kind   resolutionKind
	status int
	header http.Header
	body   []byte // of the response; or the function's value, or the text of its error
}

type resolutionKind uint8

const (
	noResolution resolutionKind = iota
	nothingHappened
	responded
	returned
	failed
)

// NothingHappened means that the run took no effect: its key is freed, and a retry runs.
func NothingHappened() Resolution { return Resolution{kind: nothingHappened} }

// Responded means that the run took effect, and that this was its response, or would have been. A retry gets it as it
// would get the run's own: with Idempotent-Replayed, for [WithRetention]'s time. Header and body are not copied, so do
// not change them before [Middleware.Resolve] has returned. If the header has no Content-Type, net/http detects one for
// each replay.
func Responded(status int, header http.Header, body []byte) Resolution {
	return Resolution{kind: responded, status: status, header: header, body: body}
}

// Returned means that the run is a function's, that it took effect, and that it returned this value, as the codec of its
// once.Guard encodes it: JSON by default. Resolve does not decode the value, and one that the codec refuses is
// once.ErrUnreadable for later calls. It is not copied, so do not change it before [Middleware.Resolve] has returned.
func Returned(encoded []byte) Resolution { return Resolution{kind: returned, body: encoded} }

// Failed means that the run is a function's, and that it returned an error with this text that is its result, as
// once.Final marks one. Later calls get a *once.StoredError.
func Failed(text string) Resolution { return Resolution{kind: failed, body: []byte(text)} }

// ErrResolution means that a [Resolution] cannot be the outcome of the run. Nothing was changed.
var ErrResolution = errors.New("middleware: this cannot be the run's outcome")

// ErrUnreadable means that [Middleware.Resolve] or [Middleware.Inspect] cannot read what is stored: it is damaged, or
// the keys of [WithEncryption] are not those that it was written with. Nothing was changed.
var ErrUnreadable = record.ErrUnreadable

// ErrJournaled means that the run has a journal, and that the Middleware has none. Nothing was changed.
var ErrJournaled = run.ErrJournaled

// ErrSettled means that the token names a run or a value that has its outcome, which [Middleware.Resolve] does not
// replace. Nothing was changed.
var ErrSettled = run.ErrSettled

// Resolve ends a run whose outcome is unknown, by what an operator has found out. Such a run died, panicked or called
// [Execution.Unknown], with [WithAtMostOnce] or an intent journal, and its retries get 409 outcome-unknown. First find
// out whether the run took its effect, in the system where it would have. Resolve cannot check the resolution, and a
// wrong NothingHappened lets the effect happen twice.
//
// storageKey is the run's key in any of the forms that [lock.Locker.Inspect] takes. token is that of the run, which the
// operator has seen: [Inspection].Journal.Token if the journal has a row, otherwise [lock.Info].Token. Resolve changes
// only that row, and only the abandoned claim with this token; the database and Redis compare in the same step. The
// fingerprint of the request is kept, so that another request with this key still gets 422.
//
// The response is encrypted, compressed and bounded by the options of m, and kept for [WithRetention]'s time from now.
// Resolve calls no observer: its caller must log who resolved what, and why. It may be called concurrently.
//
// After these errors nothing was changed:
//
//   - [lock.ErrChanged]: the key is free, or it holds another claim, row or value. The run itself may have ended late.
//     Inspect the key again.
//   - [lock.ErrLive]: the run's lease, or its time in the journal, has not run out. The run may still be at work.
//   - [ErrSettled]: the run has its outcome, which it may have stored late.
//   - [ErrResolution], with the reason: the status is not from 200 to 999, the body is longer than [WithMaxResponse] or
//     than the Content-Length, the status allows no body, a header field is malformed, or it is Set-Cookie without
//     [WithCookies]; a value or an error is longer than 1 MiB; the run is a request's, and this is a function's outcome, or
//     the reverse.
//   - [lock.ErrNotStorageKey], [lock.ErrForeign].
//   - [ErrUnreadable]: m does not have the keys of the run's middleware, or of its once.Guard.
//   - [ErrJournaled]: the run had a journal, and m has none. The journal would not learn what Resolve tells Redis. Use
//     [WithJournal], or the journal's own Sweep.
//
// After any other error, of Redis or of the journal, the run may have been resolved, or may still be: in Redis within the
// time for one operation ([lock.WithOpTimeout]), in a journal of sqljournal within 5 s. Then inspect the key again.
//
// With a journal, Resolve stores the outcome in the journal first. The journal need not know the run: a transactional
// journal has no run that did not commit. But it must not have a response, nor another run ([lock.ErrChanged]). An
// intent journal's run that Redis has lost is resolved too, and so is one that a Sweep has handed out: what its
// function then stores is rolled back. A row that a Sweep has ended without a response takes one from Resolve.
func (m *Middleware) Resolve(ctx context.Context, storageKey, token string, resolution Resolution) error {
	left, err := m.left(&resolution)
	if err != nil {
		return err
	}
	err = m.guard.Resolve(ctx, storageKey, token, left)
	if errors.Is(err, run.ErrFunction) || errors.Is(err, run.ErrRequest) {
		return fmt.Errorf("%w: %w", ErrResolution, err)
	}
	return err
}

// Record returns a response, or a function's result, as m would store it: encrypted, compressed and bounded by its options. It is for the
// function that ends a run for which a journal has no outcome, such as that of sqljournal's Sweep: Unfinished.Done
// stores it in the row with the key storageKey, and a retry gets it. The journal knows the fingerprint of the request,
// so another request with this key still gets 422. Record asks neither Redis nor the journal. It may be called
// concurrently.
//
// storageKey is the key as it stands in Redis, such as Unfinished.Key. The error is [lock.ErrNotStorageKey] or, with
// the reason, [ErrResolution]: as for Resolve, and for [NothingHappened], which leaves no response.
func (m *Middleware) Record(storageKey string, resolution Resolution) ([]byte, error) {
	left, err := m.left(&resolution)
	switch {
	case err != nil:
		return nil, err
	case left == nil:
		return nil, fmt.Errorf("%w: nothing has happened, so there is no response", ErrResolution)
	}
	return m.guard.Record(storageKey, left)
}

// left returns what the run has left, or nil if nothing has happened.
func (m *Middleware) left(r *Resolution) (*run.Left, error) {
	form := byte(record.FormValue)
	switch r.kind {
	case noResolution:
		return nil, fmt.Errorf("%w: the Resolution is the zero value", ErrResolution)
	case nothingHappened:
		return nil, nil
	case responded:
		return m.response(r)
	case failed:
		form = record.FormError
	}
	if len(r.body) > record.MaxResult {
		return nil, fmt.Errorf("%w: it is longer than 1 MiB", ErrResolution)
	}
	return &run.Left{Door: record.Value, Head: []byte{form}, Body: r.body}, nil
}

// response writes the response to the same Writer as a handler would.
func (m *Middleware) response(r *Resolution) (*run.Left, error) {
	if err := r.check(m.cookies); err != nil {
		return nil, err
	}
	p := product{options: &m.options}
	w := &p.writer
	w.Begin(nowhere{}, &http.Request{Method: http.MethodPost}, new(run.Control), m.maxResponse)
	for name, values := range r.header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(r.status)
	if _, err := w.Write(r.body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrResolution, err)
	}
	switch w.Finish(false) {
	case capture.Broken:
		return nil, fmt.Errorf("%w: its body is shorter than its Content-Length", ErrResolution)
	case capture.Partial:
		return nil, fmt.Errorf("%w: its body is longer than %d bytes, see WithMaxResponse", ErrResolution, m.maxResponse)
	}
	head, body, ok := p.Payload()
	if !ok {
		return nil, fmt.Errorf("%w: it has too many header fields", ErrResolution)
	}
	return &run.Left{Door: record.HTTP, Head: head, Body: body}, nil
}

// nowhere is a ResponseWriter without a client.
type nowhere http.Header

func (n nowhere) Header() http.Header         { return http.Header(n) }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }

// check returns an error if no run can have had this status and header.
func (r *Resolution) check(cookies bool) error {
	if r.status < 200 || r.status > 999 {
		return fmt.Errorf("%w: %d is no final status", ErrResolution, r.status)
	}
	for name, values := range r.header {
		switch {
		case !isToken(name):
			return fmt.Errorf("%w: a header field has no valid name", ErrResolution)
		case !cookies && http.CanonicalHeaderKey(name) == "Set-Cookie":
			return fmt.Errorf("%w: it has Set-Cookie, which is stored only with WithCookies", ErrResolution)
		}
		if http.CanonicalHeaderKey(name) == "Content-Length" && !isLength(values) {
			return fmt.Errorf("%w: its Content-Length is not one number of decimal digits", ErrResolution)
		}
		for _, v := range values {
			if strings.ContainsFunc(v, isControl) {
				return fmt.Errorf("%w: the header field %s has a control character", ErrResolution, name)
			}
		}
	}
	return nil
}

// isLength reports whether these values of Content-Length are a single one, of digits only (RFC 9110, section 8.6). A
// Writer takes "+3" as well, as net/http does, and would send it as it is.
func isLength(values []string) bool {
	if len(values) != 1 {
		return false
	}
	_, err := strconv.ParseUint(values[0], 10, 63)
	return err == nil
}

// isToken reports whether s is a token, as the name of a header field is (RFC 9110, sections 5.1 and 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// isControl reports whether no header field's value can have c (RFC 9110, section 5.5).
func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
