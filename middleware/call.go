package middleware

// This file contains what all steps of a request share. The steps themselves begin in idempotency.go.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/internal/reread"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/buffer"
	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/record"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// guard is what the requests of one Idempotency middleware share.
type guard struct {
	locker  *lock.Locker
	keyFunc keyfunc.Func
	waiting atomic.Int64 // requests in awaitOutcome

	redis          breaker      // keeps requests from waiting for Redis during an outage; with a journal, and in shadow
	pendingRecords atomic.Int64 // bytes of records that wait for the journal
	undoing        atomic.Int64 // runs in undoBegin

	options
}

// call is one request. It contains everything that a request needs, so that it takes one allocation.
type call struct {
	*guard
	w       http.ResponseWriter
	r       *http.Request
	arrived context.Context // the context that r came with
	next    http.Handler

	identity    identity          // read-only once the body is read
	running     running           // only of the request that took the key
	watched     *watched          // only in shadow
	replayed    *response.Scratch // has the stored response; only of a request that is answered with one
	timing      timing            // for the limits on waiting, and for the record
	event       *Event            // what is known so far; nil without an observer, except in shadow
	limitedBody requestBody       // the client's body: limits what is read
}

// identity is what tells a request from others.
type identity struct {
	key          string                // what the key function returned
	storageKey   string                // the key as it stands in Redis; empty until the claim or call.storageKey sets it
	expired      bool                  // the key is too old to run ([WithKeyAge]): it is looked up and never claimed
	outer        *Execution            // the run around this request; nil if there is none
	source       io.ReadCloser         // of the body: limitedBody, or what the key function has replaced it with
	body         *buffer.Buffer        // the whole body; nil before it is read, and when it is no longer needed
	doubt        error                 // for the Event: errMaybeUsed if the body may be missing; else nil
	fingerprints []record.Fingerprint  // one by each rule; the first one is stored
	fingerprint  [1]record.Fingerprint // the memory of fingerprints if there is one rule
}

// running is what a run of the handler needs.
type running struct {
	ctx    runContext
	exec   Execution
	writer capture.Writer
	body   reread.Body // begun if the request has a body

	claimErr error // why there is no lease; only with a journal, which then protects the run alone
}

// timing is when things happened to a request. The Event has more times.
type timing struct {
	entered   time.Time // when the request arrived, before its body; zero without WithWait
	asked     time.Time // when the last claim was sent, by call.clock
	completed time.Time // when the handler returned
}

// newCall returns a call in one allocation. It has an Event if there is an observer, and in shadow.
func (g *guard) newCall(w http.ResponseWriter, r *http.Request, next http.Handler) *call {
	if g.observe == nil && !g.shadow {
		return &call{guard: g, w: w, r: r, arrived: r.Context(), next: next}
	}
	observed := &struct {
		call
		event Event
	}{call: call{guard: g, w: w, r: r, arrived: r.Context(), next: next}}
	observed.call.event = &observed.event
	return &observed.call
}

// storageKey returns the key as it stands in Redis, or an empty string if the request has none. Until Claim has
// returned it, storageKey hashes the key itself.
func (c *call) storageKey() string {
	id := &c.identity
	if id.storageKey == "" && id.key != "" {
		id.storageKey = c.locker.StorageKey(id.key)
	}
	return id.storageKey
}

// journaled returns the run as its journal knows it, or nil without a journal.
func (c *call) journaled() *journaledRun { return c.running.exec.journaled }

// request returns the handler's request: the original one, with ctx and the body that was read.
func (c *call) request(ctx context.Context) *http.Request {
	r := c.r.WithContext(ctx)
	r.Body = http.NoBody
	if body := c.identity.body.Bytes(); len(body) > 0 {
		c.running.body.Begin(body, io.EOF, http.NoBody)
		r.Body = &c.running.body
	}
	return r
}

// removeTemporaryFiles removes the files of the handler's multipart form. net/http does that only for its own request.
func (c *call) removeTemporaryFiles(r *http.Request) {
	if r.MultipartForm != nil && c.r.MultipartForm == nil {
		_ = r.MultipartForm.RemoveAll() // net/http ignores the error too
	}
}

// dropClaim frees the body, and releases the key in the background. lease may be nil: Redis did not answer, and a
// journal decides.
func (c *call) dropClaim(lease *lock.Lease) {
	c.identity.body.Free()
	c.identity.body = nil // the release keeps the call until Redis answers
	if lease != nil {
		lease.ReleaseInBackground(c.detached())
	}
}

// abandonAt calls lease.AbandonAt, unless lease is nil.
func abandonAt(lease *lock.Lease, t time.Time) {
	if lease != nil {
		lease.AbandonAt(t)
	}
}

// abandon calls lease.Abandon, unless lease is nil.
func abandon(lease *lock.Lease) {
	if lease != nil {
		lease.Abandon()
	}
}

// capByRequest returns deadline, or the deadline of the request's context if that is earlier. Only its deadline counts,
// not its end: net/http cancels it when the client disconnects, and that must not end the run.
func (c *call) capByRequest(deadline time.Time) time.Time {
	if outer, ok := c.r.Context().Deadline(); ok && outer.Before(deadline) {
		return outer
	}
	return deadline
}

// clock returns the time if the Event needs it. Otherwise it returns zero, which saves 50 ns.
func (c *call) clock() (now time.Time) {
	if c.event != nil {
		now = time.Now()
	}
	return now
}

// ranHandler notes when the handler ran, with the request r.
func (c *call) ranHandler(r *http.Request, handler Phase) {
	if c.event != nil {
		c.event.Handler, c.event.Pattern = handler, r.Pattern
	}
}

// emit completes the Event and calls the observer. It is called once for every request except those that WithObserver
// names.
func (c *call) emit(outcome Outcome, status int, err error) {
	e := c.event
	if c.observe == nil {
		return
	}
	for _, other := range [...]error{c.running.claimErr, c.identity.doubt} {
		if other != nil {
			err = errors.Join(err, other)
		}
	}
	e.Outcome, e.Key, e.Method, e.Status = outcome, c.storageKey(), c.r.Method, status
	e.Err, e.Pending = err, errors.Is(err, lock.ErrPending)
	if e.Handler.Start.IsZero() {
		e.Pattern = c.r.Pattern
	}
	if c.watched != nil {
		e.Shadow, e.Differs = true, c.watched.differs
	}
	c.observe(c.r.Context(), *e)
}
