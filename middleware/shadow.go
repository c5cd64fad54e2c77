package middleware

// This file contains what happens to a request with [WithShadow]. In order:
//
//  1. predict finds out what Idempotency would do: run the handler under a lease, or give an answer. It works on a copy
//     of the request (identifyCopy), and under keys that only shadow uses (initWatched).
//  2. The handler runs in any case: watched (runWatched) if it would run under a lease, and otherwise runAnyway.
//  3. runWatched stores a digest of the response instead of the response, so that runAnyway can compare a later one.
//  4. The observer gets the Event with the prediction.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

var (
	errShadowPanic   = errors.New("middleware: WithShadow: the key function or the function of WithFingerprint panicked")
	errShadowStored  = errors.New("middleware: WithShadow: the function of WithStored or WithTraceparent panicked")
	errShadowOverdue = errors.New("middleware: WithShadow: the handler ran longer than WithMaxDuration, and would have been cancelled")
	errShadowLate    = errors.New("middleware: WithShadow: Redis did not answer in time; storing goes on")
)

// watched is what a request needs in shadow.
type watched struct {
	original *http.Request
	body     prefetch
	tee      *capture.Tee // records the handler's response; nil if that is neither stored nor compared
	replay   *replayed    // the response that would have been replayed; nil if there is none
	differs  bool         // the handler's response is not the one that would have been replayed
}

// replayed is what shadow stores of a response.
type replayed struct {
	status int
	digest []byte // of the body; empty if it is not known
}

// serveShadow runs the handler, and tells the observer what would have happened.
func (c *call) serveShadow() {
	c.watched = &watched{original: c.r}
	lease, predicted := c.predict()
	r := c.watchedRequest()
	switch {
	case lease != nil:
		c.runWatched(lease, r)
	case predicted != nil:
		c.runAnyway(predicted, r)
	default: // the request already runs under this key
		c.handleWatched(c.w, r)
	}
}

// predict returns what would happen without shadow: a lease if the handler would run under it, and otherwise an answer.
// It returns neither for a request that already runs under this key.
func (c *call) predict() (*lock.Lease, *answer) {
	way, predicted := c.identifyCopy()
	switch {
	case predicted != nil && errors.Is(predicted.err, errShadowStream):
		return nil, &answer{outcome: Unprotected, err: errShadowStream}
	case way == nested, predicted != nil:
		return nil, predicted
	case way == unprotected:
		return nil, &answer{outcome: Unprotected}
	}
	c.initWatched()
	lease, predicted, err := c.claimWatched()
	switch {
	case err == nil:
		return lease, predicted
	case c.mayFailOpen(err):
		return nil, &answer{outcome: Unprotected, err: err}
	}
	return nil, refuseClaim(err)
}

// identifyCopy finds the key and makes the fingerprint, on a copy of the request. The handler's request stays as it is,
// and no error reaches the ResponseWriter.
func (c *call) identifyCopy() (way way, predicted *answer) {
	s := c.watched
	s.body.open(s.original)
	c.r = s.original.WithContext(s.original.Context())
	c.r.Body = &s.body
	w := c.w
	c.w = nil // a body that is too long would close the connection
	defer func() {
		if c.r.MultipartForm != nil && s.original.MultipartForm == nil {
			_ = c.r.MultipartForm.RemoveAll()
		}
		c.r, c.w = s.original, w
		if recover() != nil { // the value may hold what must not be logged
			predicted = refuse(InvalidKey, &keyFailed, errShadowPanic)
		}
	}()
	way, predicted = c.findKey()
	if way == protected && predicted == nil {
		predicted = c.readBody()
		c.identity.body.Free()
		c.identity.body = nil
	}
	return way, predicted
}

// initWatched makes the handler's Execution, which has a new alias for each run. Then it changes the request's key to
// the one that shadow uses in Redis, so that an instance that acts never meets it.
func (c *call) initWatched() {
	e := &c.running.exec
	alias := c.locker.StorageKey("run " + uuid.NewString())
	e.key, e.alias = c.storageKey(), &alias
	e.outer, e.retention, e.atMostOnce = c.identity.outer, c.retention, c.atMostOnce

	c.identity.key = "\x00shadow\x00" + c.identity.key
	c.identity.storageKey = "" // to be made of the new key
}

// claimWatched claims the key. If another request has the key, it returns the answer that would be given, and keeps the
// response that would be replayed for a comparison.
func (c *call) claimWatched() (*lock.Lease, *answer, error) {
	if c.redis.open() {
		return nil, nil, errRedisPaused
	}
	claim, err := c.claim()
	switch {
	case err != nil:
		c.tripAfter(err)
		return nil, nil, err
	case claim.State == lock.Granted:
		return claim.Lease, nil, nil
	}
	predicted := c.answerByClaim(&claim)
	if predicted.replays {
		stored := &c.replayed.Stored
		c.watched.replay = &replayed{status: stored.Status, digest: bytes.Clone(stored.Body)}
		c.replayed.Free()
		c.replayed = nil
	}
	return nil, predicted, nil
}

// watchedRequest returns the request for the handler, with its whole body. That is the original request, unless the
// handler gets an Execution: the request has a key, and no run around it acts.
func (c *call) watchedRequest() *http.Request {
	r, e, outer := c.watched.original, &c.running.exec, c.identity.outer
	outerActs := outer != nil && outer.alias == nil
	if e.alias != nil && !outerActs { // it has a key
		r = r.WithContext(context.WithValue(r.Context(), executionKey{}, e))
	}
	r.Body = c.watched.body.handOver()
	return r
}

// handleWatched calls the handler with r. Afterwards it takes the body from goroutines that the handler has left behind,
// and does to the original request what net/http and outer middlewares expect.
func (c *call) handleWatched(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	defer func() {
		original, handler := c.watched.original, phaseSince(start)
		c.timing.completed = handler.end()
		c.ranHandler(r, handler)
		c.watched.body.rest.CutOff()
		original.Body = c.watched.body.source
		if r != original {
			original.Pattern = r.Pattern
			if r.MultipartForm != nil && original.MultipartForm == nil {
				_ = r.MultipartForm.RemoveAll()
			}
		}
	}()
	c.next.ServeHTTP(w, r)
}

// runAnyway runs the handler of a request that would not have run, or would have run unprotected.
func (c *call) runAnyway(predicted *answer, r *http.Request) {
	s, w, status := c.watched, c.w, 0
	if predicted.problem != nil {
		status = predicted.problem.Status
	}
	if s.replay != nil {
		s.tee, status = capture.NewTee(c.w, r), s.replay.status
		w = s.tee.Writer()
	}
	defer func() { c.emit(predicted.outcome, status, predicted.err) }()
	c.handleWatched(w, r)
	isComparable := s.replay != nil && len(s.replay.digest) > 0
	if isComparable && !c.isDisconnected() {
		s.tee.End(c.maxResponse)
		dropsCookies := s.tee.SetsCookies() && !c.cookies
		s.differs = s.tee.Status() != s.replay.status || dropsCookies || !bytes.Equal(s.tee.Digest(), s.replay.digest)
	}
}

// isDisconnected reports whether the client has disconnected. That may have changed the response of the handler, whose
// context it ends in shadow.
func (c *call) isDisconnected() bool {
	return errors.Is(c.watched.original.Context().Err(), context.Canceled)
}

// runWatched runs the handler of a request that would have run under a lease, and stores what a duplicate's response is
// compared with.
func (c *call) runWatched(lease *lock.Lease, r *http.Request) {
	c.watched.tee = capture.NewTee(c.w, r)
	lease.AbandonAt(time.Now().Add(c.maxDuration))
	returned := false
	defer func() { c.concludeWatched(lease, returned) }()
	c.handleWatched(c.watched.tee.Writer(), r)
	returned = true
}

// concludeWatched decides the ending of a watched run, applies it, and calls the observer. returned is false after a
// panic or a runtime.Goexit of the handler.
func (c *call) concludeWatched(lease *lock.Lease, returned bool) {
	tee := c.watched.tee
	end := c.decideWatched(returned)
	status := 0
	if returned || tee.Started() {
		status = tee.Status()
	}
	lease.AbandonAt(time.Time{})
	err := c.applyWatched(lease, &end)
	if c.event.Handler.Duration > c.maxDuration {
		end.why = errors.Join(end.why, errShadowOverdue)
	}
	c.emit(end.outcomeAfter(err), status, errors.Join(end.why, err))
}

// decideWatched decides the ending of a watched run. Its record has a digest instead of the response, and is encoded.
// A panic of the function of WithStored or WithTraceparent is recovered.
func (c *call) decideWatched(returned bool) (end ending) {
	defer func() {
		if recover() != nil {
			end = ending{action: abandonKey, outcome: Unknown, why: errShadowStored}
		}
	}()
	exec, tee := &c.running.exec, c.watched.tee
	exec.cutOff()
	verdict := tee.End(c.maxResponse)
	if tee.Started() {
		(*sendObserver)(exec).Sending()
	}
	d := exec.decision()
	hasDecided := d.unknown || d.discard || verdict == capture.LeftOpen
	switch {
	case !returned:
		end = c.unknownEnding(d, errNoReturn)
	case c.isDisconnected() && !hasDecided: // without shadow the handler would not have noticed that
		end = c.digestEnding(d.retention, nil)
	default:
		end = c.decideEnding(verdict)
	}
	if end.action == storeRecord {
		scratch := response.NewScratch()
		defer scratch.Free()
		end.encoded = c.codec.Append(make([]byte, 0, end.record.Room()), scratch, c.storageKey(), &end.record)
	}
	return end
}

// applyWatched applies the ending to the key, in the background. It waits for Redis only as long as the time for one
// operation allows after Claim: net/http sends the last bytes of the response after this.
func (c *call) applyWatched(lease *lock.Lease, end *ending) error {
	if end.action == abandonKey {
		lease.Abandon()
		return nil
	}
	applied := make(chan error, 1)
	timeout := c.locker.OpTimeout() - c.event.Claim.Duration
	ctx, encoded, retention := context.WithoutCancel(c.r.Context()), end.encoded, end.retention
	c.locker.Go(func(context.Context) {
		if encoded == nil {
			applied <- lease.Release(ctx)
		} else {
			applied <- settleEncoded(ctx, lease, encoded, retention)
		}
	})
	var err error
	select {
	case err = <-applied:
	case <-time.After(timeout):
		err = fmt.Errorf("%w: %w", errShadowLate, lock.ErrPending)
	}
	c.tripAfter(err)
	c.event.Settle = phaseSince(c.event.Handler.end())
	if err == nil || errors.Is(err, lock.ErrPending) {
		c.event.Size = len(encoded)
	}
	return err
}
