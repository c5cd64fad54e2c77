package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/buffer"
	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/record"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Idempotency returns a middleware that lets each request take effect once. Requests with the same key are one
// request: the first runs the handler, its response is stored in Redis, and the others are answered with it
// (Idempotent-Replayed: true), or with 409 while the first still runs.
//
// key says which requests are the same; [keyfunc.Standard] is method, path, user and the Idempotency-Key header of
// draft-ietf-httpapi-idempotency-key-header-07. The same middleware value may wrap any number of handlers, and be used
// concurrently. It panics when l or key is nil, and on options that contradict each other. It has to be the first to
// read the body: one that was read before can make two requests look alike.
//
// What happens to a request:
//
//  1. If its method is not covered (WithMethods), or it has no key and none is required, it is passed on untouched.
//  2. A malformed key is 400, no user is 401; Redis has not been asked then, nor the body read, unless for the key.
//  3. The body is read whole. A fingerprint of the request will tell whether a key is used for two different ones.
//  4. One round trip to Redis claims the key, or tells what is there: the stored response is replayed, a running
//     request is 409, or waited for ([WithWait]), another fingerprint 422, and one of another kind ([WithFingerprint])
//     409 fingerprint-changed. If Redis does not answer, 503: nothing runs.
//  5. The handler runs, in this goroutine. That the client leaves does not cancel its context; an outer deadline,
//     [WithMaxDuration] and the loss of the lease do, the last with the cause [lock.ErrLost]. When it has returned, a
//     goroutine that it left behind can neither read the body nor write any more. If one is in a Write or a Flush by
//     then, the response waits for it, and what is stored does not.
//  6. Its response is held back until it is stored, so that a client that has seen it can rely on its replay. A Flush, a Hijack, or a
//     response longer than [WithMaxResponse] lets it through at once. From then on the key is never freed: if the
//     response cannot be stored whole, a duplicate gets 409 response-not-stored. So does one of a handler that answers
//     on another ResponseWriter than the one that it is given, such as a framework's own, where that has a method
//     Written() bool to tell by; the Event has an error.
//  7. One round trip stores the response, or frees the key when [WithStored] says so. It does not depend on the client
//     either. If Redis does not answer, the response goes out unchanged, the Event has the error, and storing goes on in
//     the background (see [lock.ErrPending]). If another request has taken the key meanwhile, and no byte has left, this
//     run's response does not go out: the client gets the response that the key holds, or 409.
//  8. The response goes out, and the observer is called.
//
// When nobody knows what the handler did (it panicked, it returned without a word after its context was over, its
// response is shorter or longer than its Content-Length, or it called [Execution.Unknown]) and no byte has left, nothing
// is stored, and the lease is left to run out: a retry that comes at once, as net/http's own Transport sends it, meets
// 409; a later one runs again, or with [WithAtMostOnce] does not. A panic goes on unchanged.
func Idempotency(l *lock.Locker, key keyfunc.Func, opts ...Option) func(http.Handler) http.Handler {
	if l == nil {
		panic("middleware.Idempotency: the locker is nil")
	}
	if key == nil {
		panic("middleware.Idempotency: key is nil")
	}
	g := &guard{locker: l, keyFunc: key, options: defaultOptions()}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("middleware.Idempotency: option %d is nil", i+1))
		}
		opt(&g.options)
	}
	if g.atMostOnce && g.failOpen {
		panic("middleware.WithAtMostOnce: cannot be kept with WithFailOpen")
	}
	if g.journal != nil && g.failOpen {
		panic("middleware.WithJournal: cannot be kept with WithFailOpen")
	}
	if g.atMostOnce && g.retention > lock.MaxHold {
		panic("middleware.WithAtMostOnce: cannot hold a key for a WithRetention of more than ten years")
	}
	if g.codec.PlaintextReads && len(g.codec.Keys) == 0 {
		panic("middleware.WithPlaintextReads: means nothing without WithEncryption")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !g.methods[r.Method] {
				next.ServeHTTP(w, r)
				return
			}
			c := &call{guard: g, w: w, r: r, next: next}
			c.values.of = r.Context()
			if g.wait > 0 {
				c.timing.entered = time.Now()
			}
			c.serve()
		})
	}
}

// guard is the middleware, the same for all requests.
type guard struct {
	locker  *lock.Locker
	keyFunc keyfunc.Func
	waiting atomic.Int64 // requests that wait for another one

	// with a journal
	redis          breaker
	pendingRecords atomic.Int64 // bytes that wait for the journal

	options
}

// call is one request on its way through. It contains what has to be allocated for one, so that this happens at once.
type call struct {
	*guard
	w    http.ResponseWriter
	r    *http.Request
	next http.Handler

	identity identity          // read-only once the body is read
	running  running           // only of the request that took the key
	replayed *response.Scratch // has the stored response, only of a request that is answered with one
	timing   timing            // for the Event, and for the limits on waiting
	values   values            // the context of all that the locker is asked
	limited  requestBody
	note     [record.NoteLen]byte
}

// identity is what tells a request from others.
type identity struct {
	key          string                // what the key function returned
	inRedis      string                // the key as it stands there, see call.storageKey
	outer        *Execution            // the run that the request belongs to already; nil if there is none
	source       io.ReadCloser         // of the body: limited, or what a key function has made of it
	body         *buffer.Buffer        // read whole; nil when it is not needed any more
	fingerprints []record.Fingerprint  // by each rule; the first one is stored
	fingerprint  [1]record.Fingerprint // room for fingerprints where there is one rule
}

// running is what a run of the handler needs.
type running struct {
	ctx    runContext
	exec   Execution
	writer capture.Writer
	body   handlerBody

	journaled *journaledRun // nil without a journal
}

// timing is when things happened to a request, and how long they took.
type timing struct {
	entered   time.Time     // with WithWait: when the request came, before its body
	asked     time.Time     // when the key was last claimed, if clock tells
	inStore   time.Duration // spent waiting for Redis, if there is an observer
	inHandler time.Duration // spent in the handler
	completed time.Time     // when the handler returned
}

// serve answers the request. The numbers are the steps of [Idempotency].
func (c *call) serve() {
	way, refusal := c.findKey() // 1, 2
	switch {
	case way == nested:
		c.next.ServeHTTP(c.w, c.original())
		return
	case way == unprotected:
		c.pass(c.original(), nil)
		return
	case refusal.given():
		c.answer(&refusal)
		return
	}
	if refusal = c.readBody(); refusal.given() { // 3
		c.answer(&refusal)
		return
	}
	claim, err := c.claim() // 4
	switch {
	case err != nil && c.mayFailOpen(err):
		c.passUnclaimed(err)
	case err != nil && c.mayRunWithoutLease(err):
		c.run(nil) // 5 to 8
	case err != nil:
		refusal = refuseClaim(err)
		c.answer(&refusal)
	case claim.State == lock.Granted:
		c.run(claim.Lease) // 5 to 8
	default:
		c.identity.body.Free() // only the fingerprint is needed from here on, and many may wait
		c.identity.body = nil
		duplicate := c.answerDuplicate(claim)
		c.answer(&duplicate)
	}
}

// storageKey returns the key as it stands in Redis, empty if there is none. A claim has it too, so that most requests have
// it hashed only once.
func (c *call) storageKey() string {
	id := &c.identity
	if id.inRedis == "" && id.key != "" {
		id.inRedis = c.locker.StorageKey(id.key)
	}
	return id.inRedis
}

// pass runs the handler unprotected.
func (c *call) pass(r *http.Request, err error) {
	start := time.Now()
	defer func() {
		c.timing.inHandler = time.Since(start)
		c.emit(Unprotected, 0, err)
	}()
	c.next.ServeHTTP(c.w, r)
}

// passUnclaimed is pass for a request whose body was read, and whose key could not be claimed.
func (c *call) passUnclaimed(err error) {
	r := c.request(c.r.Context())
	defer c.removeTemporaryFiles(r)
	c.pass(r, err)
}

// request returns the request with ctx and the body that was read.
func (c *call) request(ctx context.Context) *http.Request {
	r := c.r.WithContext(ctx)
	r.Body = http.NoBody
	if body := c.identity.body.Bytes(); len(body) > 0 {
		c.running.body.rest = body
		r.Body = &c.running.body
	}
	return r
}

// removeTemporaryFiles does for the handler's request what net/http does for its own.
func (c *call) removeTemporaryFiles(r *http.Request) {
	if r.MultipartForm != nil && c.r.MultipartForm == nil {
		_ = r.MultipartForm.RemoveAll() // net/http has nobody to tell either
	}
}

// clock returns the time, which costs 50 ns, if there is an observer to be told how long something took, or a time limit
// for Claim and Hold, and zero if not.
func (c *call) clock() (now time.Time) {
	if c.observe != nil || c.atMostOnce {
		now = time.Now()
	}
	return now
}

// waited counts the time since start, which clock has returned, as spent waiting for Redis.
func (c *call) waited(start time.Time) {
	if c.observe != nil {
		c.timing.inStore += time.Since(start)
	}
}

// emit tells the observer. It is called once for every request, but for those that WithObserver names.
func (c *call) emit(outcome Outcome, status int, err error) {
	if c.observe == nil {
		return
	}
	c.observe(c.r.Context(), Event{
		Outcome: outcome,
		Key:     c.storageKey(),
		Status:  status,
		Err:     err,
		Pending: errors.Is(err, lock.ErrPending),
		Store:   c.timing.inStore,
		Handler: c.timing.inHandler,
	})
}
