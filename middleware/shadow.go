package middleware

// This file contains what happens to a request with [WithShadow]. In order:
//
//  1. predict finds out what the middleware would do: run the handler, or give an answer. It works on a copy of the
//     request, and under keys that only shadow uses.
//  2. The handler runs in any case: watched (runWatched) if it would run under a lease, and otherwise runAnyway.
//  3. runWatched stores a digest of the response instead of the response, so that runAnyway can compare a later one.
//  4. The observer gets the Event with the prediction.

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/response"
	"github.com/onceguard/onceguard/middleware/internal/shadow"
)

var (
	errShadowPanic   = errors.New("middleware: WithShadow: the key function or the function of WithFingerprint panicked")
	errShadowStored  = errors.New("middleware: WithShadow: the function of WithStored, WithNothingHappened or WithTraceparent panicked")
	errShadowFailed  = errors.New("middleware: WithShadow: a stored response of 500 or above would have been replayed, and the handler has now answered another")
	errShadowOverdue = errors.New("middleware: WithShadow: the handler ran longer than WithMaxDuration, and would have been cancelled")
)

// watched is a request in shadow.
type watched struct {
	*exchange
	ahead shadow.Body
}

// prediction is what would happen without shadow: the handler would run under a lease, or the client would get an answer.
type prediction struct {
	runs   bool   // the handler would run under a lease
	event  Event  // of an answer
	digest []byte // of the body of a replay; empty if it is not known
	nested bool   // the request already runs under this key
}

// serveShadow runs the handler, and reports to the observer what would have happened.
func (x *exchange) serveShadow(next http.Handler) {
	s := &watched{exchange: x}
	s.handling = new(handling)
	predicted := s.predict()
	r := s.request()
	switch {
	case predicted.nested:
		s.handle(next, x.w, r)
	case predicted.runs:
		s.runWatched(next, r)
	default:
		s.runAnyway(next, r, &predicted)
	}
}

// predict returns what would happen without shadow.
func (s *watched) predict() prediction {
	way, refusal := s.readCopy()
	switch {
	case refusal != nil && errors.Is(refusal.event.Err, shadow.ErrStream):
		return prediction{event: Event{Outcome: Unprotected, Err: shadow.ErrStream}}
	case refusal != nil:
		return prediction{event: refusal.event}
	case way == nested:
		return prediction{nested: true}
	case way == unprotected:
		return prediction{event: Event{Outcome: Unprotected}}
	}
	s.initExecution()
	result := s.m.guard.Begin(s.ctx, &s.in.run)
	switch result.Kind {
	case run.Begun:
		return prediction{runs: true}
	case run.Unprotected:
		return prediction{event: Event{Outcome: Unprotected, Err: result.Err}}
	case run.Stored:
		return s.predictReplay(&result)
	}
	return prediction{event: s.m.refusalOf(&result).event}
}

// predictReplay returns the prediction of a replay.
func (s *watched) predictReplay(result *run.Result) prediction {
	stored, err := response.Decode(result.Record.Body)
	if err != nil {
		return prediction{event: s.m.refused(run.Unreadable, err).event}
	}
	return prediction{digest: stored.Body, event: replayEvent(result, stored.Status)}
}

// readCopy reads the key and the fingerprint, on a copy of the request. The handler's request stays as it is, and no
// error reaches the ResponseWriter.
func (s *watched) readCopy() (way way, refusal *refusal) {
	s.ahead.Open(s.r)
	copied := s.r.WithContext(s.r.Context())
	copied.Body = &s.ahead
	defer func() {
		s.removeTemporaryFiles(copied)
		if recover() != nil { // the value may hold what must not be logged
			refusal = s.m.refused(run.KeyFailed, errShadowPanic)
		}
	}()
	return s.m.read(nil, copied, &s.in)
}

// initExecution makes the handler's Execution, which has a new alias for each run. Then it changes the request's key to
// the one that shadow uses in Redis, so that an instance that acts never meets it.
func (s *watched) initExecution() {
	s.exec = Execution{
		key: s.m.guard.StorageKey(&s.in.run.Request), alias: s.m.locker.StorageKey("run " + uuid.NewString()),
		outer: s.in.outer, control: run.NewControl(s.m.policy.Retention),
	}
	s.in.run.Key = "\x00shadow\x00" + s.in.run.Key
	s.in.run.StorageKey = "" // to be made of the new key
}

// request returns the request for the handler, with its whole body. The handler gets an Execution if the request has a
// key, and no run around it acts.
func (s *watched) request() *http.Request {
	r, outer := s.r, s.in.outer
	hasKey := s.exec.alias != ""
	outerActs := outer != nil && outer.alias == ""
	if hasKey && !outerActs {
		r = r.WithContext(context.WithValue(r.Context(), executionKey{}, &s.exec))
	}
	r.Body = s.ahead.HandOver()
	return r
}

// handle calls the handler with r. Afterwards it takes the body from goroutines that the handler has left behind, and
// does to the original request what net/http and outer middlewares expect.
func (s *watched) handle(next http.Handler, w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	defer func() {
		s.in.run.Phases.Operation, s.pattern = run.PhaseSince(start), r.Pattern
		s.r.Body = s.ahead.CutOff()
		s.r.Pattern = r.Pattern
		s.removeTemporaryFiles(r)
	}()
	next.ServeHTTP(w, r)
}

// runAnyway runs the handler of a request that would not have run, or would have run unprotected.
func (s *watched) runAnyway(next http.Handler, r *http.Request, predicted *prediction) {
	e := &predicted.event
	e.Shadow = true
	defer func() { s.emit(*e) }()
	if e.Outcome != Replayed {
		s.handle(next, s.w, r)
		return
	}
	tee := shadow.NewTee(s.w, r)
	s.handle(next, tee, r)
	if len(predicted.digest) > 0 && !s.isDisconnected() {
		seen := tee.End(s.m.maxResponse)
		dropsCookies := seen.SetsCookies && !s.m.cookies
		e.Differs = seen.Status != e.Status || dropsCookies || !bytes.Equal(seen.Digest, predicted.digest)
		if e.Differs && e.Status >= http.StatusInternalServerError {
			e.Err = errors.Join(e.Err, errShadowFailed)
		}
	}
}

// isDisconnected reports whether the client has disconnected. That may have changed the response of the handler, whose
// context it ends in shadow.
func (s *watched) isDisconnected() bool { return errors.Is(s.r.Context().Err(), context.Canceled) }

// runWatched runs the handler of a request that would have run under a lease, and stores what a duplicate's response is
// compared with.
func (s *watched) runWatched(next http.Handler, r *http.Request) {
	rn := &s.in.run
	tee, left := shadow.NewTee(s.w, r), new(shadow.Product)
	s.exec.control = rn.Control()
	rn.Start(left) // the handler keeps the context of its request
	returned := false
	defer func() {
		expired := rn.CutOff()
		seen := tee.End(s.m.maxResponse)
		left.Status, left.Digest = seen.Status, seen.Digest
		result := s.conclude(rn, s.ending(rn, &seen, left, returned, expired))
		e := eventOf(&result, seen.Status)
		e.Shadow = true
		if !returned && !seen.Started {
			e.Status = 0
		}
		if e.Outcome == Executed && seen.SetsCookies && !s.m.cookies {
			e.Outcome = CookiesDropped
		}
		s.emit(e)
	}()
	s.handle(next, tee, r)
	returned = true
}

// ending returns how a watched run has ended. A panic of a function of an option is recovered.
func (s *watched) ending(rn *run.Run, seen *shadow.Observed, left *shadow.Product, returned bool, expired error) (end run.Ending) {
	defer func() {
		if recover() != nil {
			end = run.Ending{How: run.Interrupted, Err: errShadowStored}
		}
	}()
	if trace := s.in.run.Traceparent; trace != nil {
		made := trace()
		s.in.run.Traceparent = func() record.Trace { return made }
	}
	if seen.Started {
		rn.Control().Sending()
	}
	wish, _, _ := rn.Control().Said()
	hasDecided := wish == run.WishUnknown || wish == run.WishDiscard || seen.Verdict == capture.LeftOpen || s.exec.refused.Load()
	switch {
	case !returned:
		return run.Ending{How: run.Interrupted, Err: run.ErrNoReturn}
	case s.isDisconnected() && !hasDecided: // without shadow the handler would not have noticed that
		left.Digest, left.IsStored = nil, true
		return run.Ending{How: run.Whole}
	case s.m.forbids(seen.Verdict, left.Status):
		return s.exec.forbidden()
	case seen.Verdict == capture.Whole:
		left.IsStored = s.m.stores(left.Status, rn.IsStrict())
		return s.m.wholeEnding(&s.exec, left.Status, seen.HeaderAtStatus, expired)
	}
	return endingOf(seen.Verdict, s.w)
}

// conclude concludes the run. It waits for Redis only as long as the time for one operation allows after the claim:
// net/http sends the last bytes of the response after this.
func (s *watched) conclude(rn *run.Run, end run.Ending) run.Result {
	phases := &s.in.run.Phases
	result := rn.ConcludeWithin(s.m.locker.OpTimeout()-phases.Claim.Duration, end)
	if phases.Operation.Duration > s.m.policy.MaxDuration {
		result.Err = errors.Join(result.Err, errShadowOverdue)
	}
	return result
}
