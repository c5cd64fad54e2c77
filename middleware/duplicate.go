package middleware

import (
	"errors"
	"time"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// The Event's errors for a duplicate of a run whose outcome is unknown.
var (
	errAbandoned = errors.New("middleware: an earlier run has left its key without an outcome, or its process died")
	errNoOutcome = errors.New("middleware: an earlier run ended with an unknown outcome, and is not repeated")
)

// answerDuplicate returns the answer to a request whose key another request has, or is too old to run. While another one
// runs, the duplicate first waits for it ([WithWait]). answerDuplicate never runs the handler, even if the other run left
// no response: a retry may run then.
func (c *call) answerDuplicate(claim *lock.Claim) *answer {
	switch {
	case claim.State == lock.Abandoned, claim.State == lock.Free:
		return c.lookInJournal(c.answerByClaim(claim))
	case claim.State != lock.Held || c.wait == 0:
		return c.answerByClaim(claim)
	}
	if a := c.answerByClaim(claim); a.outcome != InFlight { // such as Reused, which a wait would not change
		return a
	}
	after, err := c.awaitOutcome()
	switch {
	case errors.Is(err, lock.ErrSettled), errors.Is(err, lock.ErrForeign), errors.Is(err, lock.ErrClosed):
		return refuseClaim(err)
	case err != nil: // the deadline has passed, the client has disconnected, or too many are waiting
		return c.refuseInFlight(claim, waitFailure(err))
	case after.State == lock.Abandoned, after.State == lock.Free:
		return c.lookInJournal(c.answerByClaim(&after))
	}
	return c.answerByClaim(&after)
}

// answerByClaim returns the answer that follows from what the key holds: a value, another request's claim, or nothing. It
// holds nothing for a waiter whose first request left no response, and for a key that is too old to run.
func (c *call) answerByClaim(claim *lock.Claim) *answer {
	switch {
	case claim.State == lock.Settled:
		return c.replay(claim.Value)
	case claim.State == lock.Free && c.identity.expired:
		return refuse(ExpiredKey, &keyExpired, nil)
	case claim.State == lock.Free:
		return refuse(Freed, &runFailed, nil)
	}
	theirs, err := c.codec.DecodeNote(c.identity.storageKey, claim.Note)
	switch {
	case err != nil:
		return refuse(Unreadable, &recordUnreadable, err)
	case c.compare(theirs.Fingerprint) == different:
		return reusedAnswer
	case claim.State == lock.Abandoned:
		return refuse(Unknown, &outcomeUnknown, errAbandoned)
	}
	return c.refuseInFlight(claim, nil)
}

// refuseInFlight returns the answer to a duplicate of a run that has the key. Retry-After is the age of the run's
// claim, so that a client that obeys it doubles its pause with each try. It is at least 1 s. It is at most one lease,
// because a run that died keeps its duplicates in flight for no longer than that. The bounds also limit an age that is
// wrong because two clocks differ.
func (c *call) refuseInFlight(claim *lock.Claim, err error) *answer {
	a := refuse(InFlight, &inFlight, err)
	a.retryAfter = max(time.Second, min(time.Since(claim.ClaimedAt), c.locker.TTL()).Truncate(time.Second))
	return a
}

// replay returns the answer that follows from a stored value: its response or, if that cannot be sent, the reason.
func (c *call) replay(value []byte) *answer {
	s := response.NewScratch()
	r, err := c.codec.Decode(s, c.identity.storageKey, value)
	alike := c.compare(r.Fingerprint)
	if err == nil && alike == same && !r.Tombstone {
		if e := c.event; e != nil {
			e.Size, e.Age, e.Traceparent = len(value), max(0, e.latest().Sub(r.Completed)), r.Trace.String()
		}
		c.replayed = s
		return replayAnswer
	}
	defer s.Free()
	switch {
	case err != nil:
		return refuse(Unreadable, &recordUnreadable, err)
	case alike == different:
		return reusedAnswer
	case alike == incomparable:
		return refuse(FingerprintChanged, &fingerprintChanged, nil)
	}
	if r.Unknown {
		return refuse(Unknown, &unknownNotStored, errNoOutcome)
	}
	p := responseNotStored
	p.OriginalStatus = r.Status
	return refuse(NotStored, &p, nil)
}
