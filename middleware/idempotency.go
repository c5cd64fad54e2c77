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
//  6. Its response is held back until it is stored: whoever has seen it can rely on its replay. A Flush, a Hijack, or a
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
	if g.atMostOnce && g.retention > lock.MaxHold {
		panic("middleware.WithAtMostOnce: cannot hold a key for a WithRetention of more than ten years")
	}
	if g.codec.plaintextReads && len(g.codec.keys) == 0 {
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
				c.entered = time.Now()
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
	options
}

// call is one request on its way through. It contains what has to be allocated for one, so that this happens at once.
type call struct {
	*guard
	w    http.ResponseWriter
	r    *http.Request
	next http.Handler

	entered   time.Time  // with WithWait: when the request came, before its body
	values    values     // the context of all that is asked of the locker
	outer     *Execution // the run that the request belongs to already
	key       string     // what the key function says
	inRedis   string     // the key as it stands there, see storageKey
	limited   requestBody
	source    io.ReadCloser // of the body: limited, or what a key function has made of it
	body      *buffer       // read whole
	note      [noteLen]byte
	asked     time.Time     // when the key was last asked for, if clock tells
	inStore   time.Duration // spent waiting for Redis, if there is an observer
	inHandler time.Duration // spent in the handler
	completed time.Time     // when it returned

	fingerprints []fingerprint  // the request's, by each rule; the first one is stored
	fingerprint  [1]fingerprint // memory of fingerprints where there is one rule

	// of a run
	ctx       runContext
	exec      Execution
	rec       recorder
	lost      error // another request took the key, and the run's own response does not go out
	bodyAgain handlerBody
}

// storageKey returns the key as it stands in Redis, empty if there is none. A claim says it too, so that most requests
// have it hashed only once.
func (c *call) storageKey() string {
	if c.inRedis == "" && c.key != "" {
		c.inRedis = c.locker.StorageKey(c.key)
	}
	return c.inRedis
}

func (c *call) serve() {
	if !c.findKey() || !c.readBody() {
		return
	}
	claim, ok := c.claim()
	if !ok {
		return
	}
	if claim.State != lock.Granted {
		c.body.free() // only the fingerprint is needed from here on, and many may wait
		c.body = nil
	}
	switch claim.State {
	case lock.Granted:
		if c.hold(claim.Lease) && c.inTime(claim.Lease) {
			c.run(claim.Lease)
		}
	case lock.Held:
		c.attend(claim)
	case lock.Abandoned:
		c.meetAbandoned(claim.Note)
	case lock.Settled:
		c.replay(claim.Value)
	}
}

// claim asks for the key. It answers the request itself when there is no telling who has it. That the client has left
// meanwhile is no reason not to run what it has asked for, and must not be taken for a failure of Redis.
func (c *call) claim() (claim lock.Claim, ok bool) {
	if err := c.r.Context().Err(); errors.Is(err, context.DeadlineExceeded) { // the run would begin at its end
		c.refuse(StoreUnavailable, storeUnavailable, err)
		return lock.Claim{}, false
	}
	claim, err := c.ask()
	switch {
	case err == nil:
		c.inRedis = claim.Key
		return claim, true
	case errors.Is(err, lock.ErrForeign):
		c.refuse(Unreadable, recordUnreadable, err)
	case errors.Is(err, lock.ErrSettled):
		c.refuse(StoreUnavailable, responseUnconfirmed, err)
	case c.failOpen && !errors.Is(err, lock.ErrClosed):
		r := c.request(c.r.Context())
		defer c.removeTemporaryFiles(r)
		c.pass(r, err)
	default:
		c.refuse(StoreUnavailable, storeUnavailable, err)
	}
	return lock.Claim{}, false
}

// ask claims the key.
func (c *call) ask() (lock.Claim, error) {
	sealedFor := ""
	if len(c.codec.keys) > 0 { // nothing else needs it before the claim tells it
		sealedFor = c.storageKey()
	}
	c.asked = c.clock()
	claim, err := c.locker.Claim(&c.values, c.key, c.codec.encodeNote(c.note[:0], sealedFor, c.fingerprints[0]))
	c.waited(c.asked)
	return claim, err
}

// inTime tells whether there is any time left for a run. It answers the request itself if there is none.
func (c *call) inTime(lease *lock.Lease) bool {
	err := c.r.Context().Err()
	if !errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	c.giveBack(lease, err)
	return false
}

// hold sees to it, with WithAtMostOnce, that the key outlives even this process. It answers the request itself if that
// fails: then nothing must run. Claim and Hold together take no longer than one operation may.
func (c *call) hold(lease *lock.Lease) bool {
	if !c.atMostOnce {
		return true
	}
	ctx, cancel := context.WithDeadline(&c.values, c.asked.Add(c.locker.OpTimeout()))
	defer cancel()
	start := c.clock()
	err := lease.Hold(ctx, c.retention)
	c.waited(start)
	if err != nil {
		c.giveBack(lease, err)
	}
	return err == nil
}

// giveBack refuses a request that has taken its key and cannot run. The client does not wait for the release.
func (c *call) giveBack(lease *lock.Lease, err error) {
	c.body.free()
	c.body = nil // the release keeps the call for as long as Redis is silent
	lease.ReleaseInBackground(&c.values)
	c.refuse(StoreUnavailable, notBegun(c.locker.TTL()), err)
}

// meet answers a request whose key somebody else has claimed for the same request, with the outcome and problem given.
func (c *call) meet(note []byte, outcome Outcome, p Problem) {
	if c.isSame(note) {
		c.refuse(outcome, p, nil)
	}
}

// meetAbandoned is meet for a claim whose run has left it.
func (c *call) meetAbandoned(note []byte) {
	if c.isSame(note) {
		c.refuse(Unknown, outcomeUnknown, errAbandoned)
	}
}

// isSame tells whether a claim was made for the same request, as far as the two can be compared. It answers the request
// itself if not.
func (c *call) isSame(note []byte) bool {
	theirs, err := c.codec.decodeNote(c.inRedis, note)
	switch {
	case err != nil:
		c.refuse(Unreadable, recordUnreadable, err)
	case c.compare(theirs) == different:
		c.refuseOther()
	default:
		return true
	}
	return false
}

// refuseOther answers a request whose key is used for another one. If it is a run that lost its key to that one, it may
// have taken effect all the same.
func (c *call) refuseOther() {
	if c.lost != nil {
		c.refuse(Unknown, outcomeUnknown, nil)
		return
	}
	c.refuse(Reused, keyReused, nil)
}

// pass runs the handler unprotected.
func (c *call) pass(r *http.Request, err error) {
	start := time.Now()
	defer func() {
		c.inHandler = time.Since(start)
		c.emit(Unprotected, 0, err)
	}()
	c.next.ServeHTTP(c.w, r)
}

// clock returns the time, which costs 50 ns, if there is an observer to be told how long something took, or a time limit
// for Claim and Hold, and zero if not.
func (c *call) clock() (now time.Time) {
	if c.observe != nil || c.atMostOnce {
		now = time.Now()
	}
	return now
}

// waited counts the time since start, which clock has told, as spent waiting for Redis.
func (c *call) waited(start time.Time) {
	if c.observe != nil {
		c.inStore += time.Since(start)
	}
}

// emit tells the observer. It is called once for every request, but for those that WithObserver names.
func (c *call) emit(outcome Outcome, status int, err error) {
	if c.observe == nil {
		return
	}
	if c.lost != nil {
		outcome, err = LeaseLost, errors.Join(c.lost, err)
	}
	c.observe(c.r.Context(), Event{
		Outcome: outcome,
		Key:     c.storageKey(),
		Status:  status,
		Err:     err,
		Pending: errors.Is(err, lock.ErrPending),
		Store:   c.inStore,
		Handler: c.inHandler,
	})
}

// request returns the request with ctx and the body that was read.
func (c *call) request(ctx context.Context) *http.Request {
	r := c.r.WithContext(ctx)
	r.Body = http.NoBody
	if len(c.body.bytes()) > 0 {
		c.bodyAgain.rest = c.body.bytes()
		r.Body = &c.bodyAgain
	}
	return r
}
