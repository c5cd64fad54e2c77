package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// NothingHappened says that the run took no effect: its key is freed, and a retry runs.
func NothingHappened() Resolution { return Resolution{kind: nothingHappened} }

// Responded says that the run took effect, and what its response was, or would have been. A retry gets it, as it would
// have got the run's own: with Idempotent-Replayed, for the retention, stored in the same form. Header and body are not
// copied. A header without a Content-Type gets the one that net/http would detect.
func Responded(status int, header http.Header, body []byte) Resolution {
	return Resolution{kind: responded, status: status, header: header, body: body}
}

// ErrResolution means that a [Resolution] could not have been a run's. Nothing was changed.
var ErrResolution = errors.New("middleware: this cannot be a response")

// ErrUnreadable means that what a claim has stored about its request is damaged, or not readable with these options of
// [Resolve]: its keys are not the middleware's. Nothing was changed.
var ErrUnreadable = record.ErrUnreadable

// ErrJournaled means that a run has a journal, and that [Resolve] was not given it ([WithJournal]). Nothing was
// changed.
var ErrJournaled = errors.New("middleware: the run has a journal, which has the last word")

// Resolve settles, with an operator's word, a run whose outcome is unknown: one that died, panicked or called
// [Execution.Unknown] under [WithAtMostOnce], and whose retries get 409 outcome-unknown. First find out, in the system
// where it took its effect, whether it did: nothing here can check what the resolution says, and a wrong
// NothingHappened lets the effect happen twice.
//
// storageKey is the run's key in any of the forms that [lock.Locker.Inspect] takes. token is [lock.Info].Token, as the
// operator has seen it: Resolve acts on that abandoned claim only, and Redis compares in the same step. What the
// request was (its fingerprint) is kept, so that another request with this key still gets 422.
//
// The options are those of the middleware: give the same ones. Those that count are [WithEncryption],
// [WithPlaintextReads], [WithCompression], [WithRetention], which counts from now, [WithMaxResponse], [WithCookies] and
// [WithJournal]. Resolve calls no observer: its caller has to log who said what, and why.
//
// These errors mean that nothing was changed:
//
//   - [lock.ErrChanged]: the key is free, or it holds another claim or a value. The run itself may have ended
//     meanwhile, late. Look again.
//   - [lock.ErrLive]: the run's lease has not run out, or its time in the journal. It may still be at work.
//   - [ErrResolution], with the reason: the status is not from 200 to 999, the body is longer than [WithMaxResponse] or
//     than the Content-Length says, the status allows no body, a header field is malformed, or it is Set-Cookie without
//     [WithCookies].
//   - [lock.ErrNotStorageKey], [lock.ErrForeign].
//   - [ErrUnreadable]: these are not the middleware's options, or not its keys.
//   - [ErrJournaled]: the run had a journal, and the options have none. What Redis alone is told, the journal would not
//     know: resolve it with [WithJournal], or by the journal's own Sweep.
//
// After any other error, of Redis or of the journal, look again: it may have been resolved.
//
// With a journal, the journal gets the outcome first. It need not agree that there is such a run: a transactional
// journal has none that did not commit. It must not have an outcome, nor another run ([lock.ErrChanged]). An intent
// journal's run that Redis has forgotten is resolved too, with the token of its row. Where the journal's own
// Sweep runs, leave such runs to it: a run that it has handed out has another token, and Resolve leaves it alone.
//
// Resolve panics when the locker or an option is nil, and on options that contradict each other.
func Resolve(
	ctx context.Context, locker *lock.Locker, storageKey, token string, resolution Resolution, opts ...Option,
) error {
	if locker == nil {
		panic("middleware.Resolve: the locker is nil")
	}
	r := &resolver{locker: locker, token: token, said: resolution, options: newOptions("middleware.Resolve", opts)}
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

// resolver resolves one run.
type resolver struct {
	options
	locker *lock.Locker
	key    string // as it stands in Redis
	token  string
	said   Resolution
}

// resolveStored resolves the run in Redis.
func (r *resolver) resolveStored(ctx context.Context, info lock.Info) error {
	if err := r.checkClaim(info); err != nil {
		return err
	}
	if r.said.kind == nothingHappened {
		return r.free(ctx)
	}
	return r.locker.SettleAbandoned(ctx, r.key, r.token, r.encode, r.retention)
}

// errFree makes SettleAbandoned store nothing, once the note was read.
var errFree = errors.New("middleware: the key is to be freed")

// free frees the key, unless its note says that these are not the middleware's options.
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
	return r.locker.ForgetStored(ctx, r.key, r.token)
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

// capture takes the response through the writer that a handler's response goes through.
func (r *resolver) capture(fingerprint record.Fingerprint) ([]byte, error) {
	request, err := http.NewRequest(http.MethodPost, "/", nil)
	if err != nil {
		return nil, err
	}
	var w capture.Writer
	w.Begin(nowhere{}, request, new(sendObserver), r.maxResponse)
	defer w.Withdraw()
	for name, values := range r.said.header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(r.said.status)
	if _, err := w.Write(r.said.body); err != nil {
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
	return r.codec.Append(make([]byte, 0, rec.Room()), w.Scratch(), r.key, rec), nil
}

// nowhere is a ResponseWriter without a client.
type nowhere http.Header

func (n nowhere) Header() http.Header         { return http.Header(n) }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }

// check returns an error if no run can have had the response, as far as its status and header tell.
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
		for _, v := range values {
			if strings.ContainsFunc(v, isControl) {
				return fmt.Errorf("%w: the header field %s has a control character", ErrResolution, name)
			}
		}
	}
	return nil
}

// isToken reports whether s is a token, as the name of a header field is (RFC 9110, sections 5.1 and 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// isControl reports whether no header field's value can have c (RFC 9110, section 5.5).
func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
