package middleware

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

// This file has what happens to a request with [WithShadow]: foresee finds out what Idempotency would do, and the handler
// runs in any case.

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
	tee      *capture.Tee // nil unless what the handler answers is stored or compared
	replay   *replayed    // what would have been sent; nil if that is not known
	differs  bool
}

// replayed is what shadow stores of a response.
type replayed struct {
	status int
	digest []byte // of the body; empty if it is not known
}

// serveShadow runs the handler, and tells the observer what would have happened.
func (c *call) serveShadow() {
	c.watched = &watched{original: c.r}
	lease, would := c.foresee()
	r := c.watchedRequest()
	switch {
	case lease != nil:
		c.runWatched(lease, r)
	case would.given():
		c.runBeside(&would, r)
	default: // already runs under this key
		c.next.ServeHTTP(c.w, r)
	}
}

// foresee returns what would happen: a lease if the handler would run under it, an answer if not. The zero answer is for
// a request that already runs under this key.
func (c *call) foresee() (*lock.Lease, answer) {
	way, would := c.identify()
	switch {
	case errors.Is(would.err, errShadowStream):
		return nil, answer{outcome: Unprotected, err: errShadowStream}
	case way == nested, would.given():
		return nil, would
	case way == unprotected:
		return nil, answer{outcome: Unprotected}
	}
	c.initWatched()
	lease, would, err := c.claimWatched()
	if err == nil {
		return lease, would
	}
	if c.mayFailOpen(err) {
		return nil, answer{outcome: Unprotected, err: err}
	}
	return nil, refuseClaim(err)
}

// identify finds the key and makes the fingerprint, on a copy of the request. The handler's request stays as it is, and
// no error reaches the ResponseWriter.
func (c *call) identify() (way way, would answer) {
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
			would = refuse(InvalidKey, &keyFailed, errShadowPanic)
		}
	}()
	way, would = c.findKey()
	if way == protected && !would.given() {
		would = c.readBody()
		c.identity.body.Free()
		c.identity.body = nil
	}
	return way, would
}

// initWatched gives the request the key that shadow uses, and the Execution that its handler gets.
func (c *call) initWatched() {
	e := &c.running.exec
	e.key, e.outer, e.retention = c.storageKey(), c.identity.outer, c.retention
	alias := c.locker.StorageKey("run " + uuid.NewString())
	e.alias, e.atMostOnce = &alias, c.atMostOnce
	c.identity.key, c.identity.storageKey = "\x00shadow\x00"+c.identity.key, ""
}

// claimWatched claims the key, and holds it with [WithAtMostOnce]. The answer is given if another request has it.
func (c *call) claimWatched() (*lock.Lease, answer, error) {
	if c.redis.open() {
		return nil, answer{}, errRedisPaused
	}
	claim, err := c.claim()
	if err == nil && claim.State == lock.Granted {
		if err = c.hold(claim.Lease); err == nil {
			return claim.Lease, answer{}, nil
		}
		claim.Lease.ReleaseInBackground(c.detached())
	}
	if err != nil {
		c.tripAfter(err)
		return nil, answer{}, err
	}
	would := c.answerByClaim(claim)
	if would.replays {
		stored := &c.replayed.Stored
		c.watched.replay = &replayed{status: stored.Status, digest: bytes.Clone(stored.Body)}
		c.replayed.Free()
		c.replayed = nil
	}
	return nil, would, nil
}

// watchedRequest returns the request for the handler, with its whole body. Only a request that has a key, and does not
// run inside of another run, needs an Execution and so a request of its own.
func (c *call) watchedRequest() *http.Request {
	s := c.watched
	s.original.Body = s.body.handOver()
	e := &c.running.exec
	if outer := c.identity.outer; e.alias == nil || outer != nil && outer.alias == nil {
		return s.original
	}
	return s.original.WithContext(context.WithValue(s.original.Context(), executionKey{}, e))
}

// handleWatched calls the handler. It does after it what net/http and outer middlewares expect of the original request.
func (c *call) handleWatched(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	defer func() {
		original, handler := c.watched.original, phaseSince(start)
		c.timing.completed = handler.end()
		c.ranHandler(r, handler)
		if r != original {
			original.Pattern = r.Pattern
			if r.MultipartForm != nil && original.MultipartForm == nil {
				_ = r.MultipartForm.RemoveAll()
			}
		}
	}()
	c.next.ServeHTTP(w, r)
}

// runBeside runs the handler of a request that would not have run, or would have run unprotected.
func (c *call) runBeside(would *answer, r *http.Request) {
	s, w, status := c.watched, c.w, 0
	if would.problem != nil {
		status = would.problem.Status
	}
	if s.replay != nil {
		s.tee, status = capture.NewTee(c.w, r), s.replay.status
		w = s.tee.Writer()
	}
	defer func() { c.emit(would.outcome, status, would.err) }()
	c.handleWatched(w, r)
	if s.replay != nil && len(s.replay.digest) > 0 && !c.clientLeft() {
		s.tee.End(c.maxResponse)
		s.differs = s.tee.Status() != s.replay.status || !bytes.Equal(s.tee.Digest(), s.replay.digest)
	}
}

// clientLeft reports whether the client has disconnected. The handler may have answered otherwise than it would have
// without that.
func (c *call) clientLeft() bool {
	return errors.Is(c.watched.original.Context().Err(), context.Canceled)
}

// runWatched runs the handler of a request that would have run, and stores what a duplicate is compared with.
func (c *call) runWatched(lease *lock.Lease, r *http.Request) {
	c.watched.tee = capture.NewTee(c.w, r)
	lease.AbandonAt(time.Now().Add(c.maxDuration))
	returned := false
	defer func() {
		status := 0
		end := c.decideWatched(returned)
		if returned || c.watched.tee.Started() {
			status = c.watched.tee.Status()
		}
		lease.AbandonAt(time.Time{})
		err := c.settleWatched(lease, &end)
		if c.event.Handler.Duration > c.maxDuration {
			end.why = errors.Join(end.why, errShadowOverdue)
		}
		c.emit(end.outcomeAfter(err), status, errors.Join(end.why, err))
	}()
	c.handleWatched(c.watched.tee.Writer(), r)
	returned = true
}

// decideWatched decides what a run does with its key. A digest takes the place of the response.
func (c *call) decideWatched(returned bool) (end ending) {
	defer func() {
		if recover() != nil {
			end = ending{action: abandonKey, outcome: Unknown, why: errShadowStored}
		}
	}()
	exec, tee := &c.running.exec, c.watched.tee
	verdict := tee.End(c.maxResponse)
	if tee.Started() {
		(*sendObserver)(exec).Sending()
	}
	said := exec.decision()
	switch {
	case !returned:
		end = c.unknownEnding(said, errNoReturn)
	case c.clientLeft() && !said.unknown && !said.discard: // without shadow the handler would not have learnt that
		end = c.digestEnding(said.retention, nil)
	default:
		end = c.decideEnding(verdict)
	}
	if end.action == storeRecord {
		scratch := response.NewScratch()
		defer scratch.Free()
		end.encoded = c.codec.Append(make([]byte, 0, end.record.Room()), scratch, c.storageKey(), end.record)
	}
	return end
}

// settleWatched does in Redis what was decided. It does not wait longer than is left of the time for one operation: the
// last bytes of the response leave when the handler of net/http returns.
func (c *call) settleWatched(lease *lock.Lease, end *ending) error {
	if end.action == abandonKey {
		lease.Abandon()
		return nil
	}
	settled := make(chan error, 1)
	timeout := time.NewTimer(c.locker.OpTimeout() - c.event.Claim.Duration - c.event.Hold.Duration)
	defer timeout.Stop()
	values, encoded, retention := context.WithoutCancel(c.r.Context()), end.encoded, end.retention
	c.locker.Go(func(context.Context) {
		if encoded == nil {
			settled <- lease.Release(values)
		} else {
			settled <- settleEncoded(values, lease, encoded, retention)
		}
	})
	var err error
	select {
	case err = <-settled:
	case <-timeout.C:
		err = fmt.Errorf("%w: %w", errShadowLate, lock.ErrPending)
	}
	c.tripAfter(err)
	c.event.Settle = phaseSince(c.event.Handler.end())
	if err == nil || errors.Is(err, lock.ErrPending) {
		c.event.Size = len(encoded)
	}
	return err
}
