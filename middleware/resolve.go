package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/record"
)

// Resolution is what an operator has found out about a run whose outcome is unknown: [NothingHappened], or [Responded].
// The zero value is refused.
type Resolution struct {
	kind   resolutionKind
	status int
	header http.Header
	body   []byte
}

type resolutionKind uint8

const (
	unresolved resolutionKind = iota
	nothingHappened
	responded
)

// NothingHappened means that the run took no effect: its key is freed, and a retry runs.
func NothingHappened() Resolution { return Resolution{kind: nothingHappened} }

// Responded means that the run took effect, and that this was its response, or would have been. A retry gets it as it
// would get the run's own: with Idempotent-Replayed, for [WithRetention]'s time. Header and body are not copied, so do
// not change them before [Resolve] has returned. A header without a Content-Type gets the one that net/http would
// detect.
func Responded(status int, header http.Header, body []byte) Resolution {
	return Resolution{kind: responded, status: status, header: header, body: body}
}

// ErrResolution means that a [Resolution] could not have been a run's. Nothing was changed.
var ErrResolution = errors.New("middleware: this cannot be a response")

// ErrUnreadable means that [Resolve] cannot read what the claim has stored about its request: it is damaged, or the
// keys of [WithEncryption] are not the middleware's. Nothing was changed.
var ErrUnreadable = record.ErrUnreadable

// ErrJournaled means that the run has a journal, and that [Resolve] was called without [WithJournal]. Nothing was
// changed.
var ErrJournaled = errors.New("middleware: the run has a journal, which has the last word")

// Resolve ends a run whose outcome is unknown, by what an operator has found out. Such a run died, panicked or called
// [Execution.Unknown] under [WithAtMostOnce], and its retries get 409 outcome-unknown. First find out whether the run
// took its effect, in the system where it would have. Resolve cannot check the resolution, and a wrong NothingHappened
// lets the effect happen twice.
//
// storageKey is the run's key in any of the forms that [lock.Locker.Inspect] takes. token is the [lock.Info].Token that
// the operator has seen. Resolve changes the key only if it still holds the abandoned claim with this token, and Redis
// compares in the same step. The fingerprint of the request is kept, so that another request with this key still gets
// 422.
//
// Give the options of the middleware. Those that count are [WithEncryption], [WithPlaintextReads], [WithCompression],
// [WithRetention] (counted from now), [WithMaxResponse], [WithCookies] and [WithJournal]. Resolve calls no observer:
// its caller must log who resolved what, and why. It may be called concurrently.
//
// After these errors nothing was changed:
//
//   - [lock.ErrChanged]: the key is free, or it holds another claim or a value. The run itself may have ended late.
//     Inspect the key again.
//   - [lock.ErrLive]: the run's lease, or its time in the journal, has not run out. The run may still be at work.
//   - [ErrResolution], with the reason: the status is not from 200 to 999, the body is longer than [WithMaxResponse] or
//     than the Content-Length, the status allows no body, a header field is malformed, or it is Set-Cookie without
//     [WithCookies].
//   - [lock.ErrNotStorageKey], [lock.ErrForeign].
//   - [ErrUnreadable]: the options are not the middleware's.
//   - [ErrJournaled]: the run had a journal, and the options have none. The journal would not learn what Resolve tells
//     Redis. Use [WithJournal], or the journal's own Sweep.
//
// After any other error, of Redis or of the journal, inspect the key again: the run may have been resolved.
//
// With a journal, Resolve stores the outcome in the journal first. The journal need not know the run: a transactional
// journal has no run that did not commit. But it must not have an outcome, nor another run ([lock.ErrChanged]). An
// intent journal's run that Redis has lost is resolved too, by the token of its row. If the journal's own Sweep runs,
// leave such runs to it: Sweep gives each run that it hands out another token, and Resolve leaves that run alone.
//
// Resolve panics when the locker or an option is nil, on options that contradict each other, and on a journal of another
// namespace than the locker's.
func Resolve(
	ctx context.Context, locker *lock.Locker, storageKey, token string, resolution Resolution, opts ...Option,
) error {
	if locker == nil {
		panic("middleware.Resolve: the locker is nil")
	}
	r := &resolver{locker: locker, token: token, resolution: resolution, options: newOptions("middleware.Resolve", locker, opts)}
	if err := resolution.check(r.cookies); err != nil {
		return err
	}
	info, err := locker.Inspect(ctx, storageKey)
	if err != nil {
		return err
	}
	r.key = info.Key
	if r.journal != nil {
		return r.resolveJournaled(ctx, info)
	}
	return r.resolveStored(ctx, info)
}

// resolver resolves one run. The note of its claim, or of its row in the journal, has the fingerprint that encode puts
// into the record.
type resolver struct {
	options
	locker     *lock.Locker
	key        string // as it stands in Redis
	token      string
	resolution Resolution
}

// resolveStored resolves the run in Redis.
func (r *resolver) resolveStored(ctx context.Context, info lock.Info) error {
	if err := r.checkClaim(info); err != nil {
		return err
	}
	if r.resolution.kind == nothingHappened {
		return r.free(ctx)
	}
	return r.locker.SettleAbandoned(ctx, r.key, r.token, r.encode, r.retention)
}

// errFree makes SettleAbandoned store nothing after free has read the note.
var errFree = errors.New("middleware: the key is to be freed")

// free frees the key, unless its note shows that these are not the middleware's options.
func (r *resolver) free(ctx context.Context) error {
	err := r.locker.SettleAbandoned(ctx, r.key, r.token, func(note []byte) ([]byte, error) {
		if _, err := r.decode(note); err != nil {
			return nil, err
		}
		return nil, errFree
	}, r.retention)
	if !errors.Is(err, errFree) {
		return err
	}
	return r.locker.Forget(ctx, r.key, r.token)
}

// checkClaim returns an error unless the key holds the abandoned claim.
func (r *resolver) checkClaim(info lock.Info) error {
	switch {
	case info.State == lock.Free, info.Token != r.token, info.State == lock.Settled:
		return fmt.Errorf("%w: it is %v", lock.ErrChanged, info.State)
	case info.State == lock.Held:
		return lock.ErrLive
	}
	return nil
}

// encode returns the response as a record, with the fingerprint of note.
func (r *resolver) encode(note []byte) ([]byte, error) {
	n, err := r.decode(note)
	if err != nil {
		return nil, err
	}
	return r.capture(n.Fingerprint)
}

// decode decodes the claim's note.
func (r *resolver) decode(note []byte) (record.Note, error) {
	n, err := r.codec.DecodeNote(r.key, note)
	if err == nil && n.Journaled && r.journal == nil {
		err = ErrJournaled
	}
	return n, err
}

// capture returns the encoded record of the response. It writes the response to the same Writer as a handler would.
func (r *resolver) capture(fingerprint record.Fingerprint) ([]byte, error) {
	request, err := http.NewRequest(http.MethodPost, "/", nil)
	if err != nil {
		return nil, err
	}
	var w capture.Writer
	w.Begin(nowhere{}, request, new(sendObserver), r.maxResponse)
	defer w.Withdraw()
	for name, values := range r.resolution.header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(r.resolution.status)
	if _, err := w.Write(r.resolution.body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrResolution, err)
	}
	switch w.Seal(context.Background()) {
	case capture.Broken:
		return nil, fmt.Errorf("%w: its body is shorter than its Content-Length", ErrResolution)
	case capture.Partial:
		return nil, fmt.Errorf("%w: its body is longer than %d bytes, see WithMaxResponse", ErrResolution, r.maxResponse)
	}
	stored, _ := w.Response(r.cookies)
	rec := record.Record{Fingerprint: fingerprint, Completed: time.Now(), Response: stored}
	if !rec.IsReadable() {
		return nil, fmt.Errorf("%w: it has too many header fields", ErrResolution)
	}
	return r.codec.Append(make([]byte, 0, rec.Room()), w.Scratch(), r.key, &rec), nil
}

// nowhere is a ResponseWriter without a client.
type nowhere http.Header

func (n nowhere) Header() http.Header         { return http.Header(n) }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }

// check returns an error if no run can have had this status and header.
func (r *Resolution) check(cookies bool) error {
	switch {
	case r.kind == nothingHappened:
		return nil
	case r.kind == unresolved:
		return fmt.Errorf("%w: the Resolution is the zero value", ErrResolution)
	case r.status < 200 || r.status > 999:
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
