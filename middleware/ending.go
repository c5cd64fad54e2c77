package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/record"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// This file decides what a finished run does with its key, its ending (decideEnding), and does that in Redis
// (applyEnding). conclude, in run.go, calls both the journal and applyEnding.

// ending is what a run does with its key.
type ending struct {
	action    action
	record    record.Record // of storeRecord, unless encoded
	encoded   []byte        // the record as it is in the journal, nil without one
	inJournal bool          // the journal has it: the run counts as Executed, whatever happens in Redis
	size      int           // of the record in bytes, once it is stored or pending; for the Event
	retention time.Duration // of the record
	outcome   Outcome       // of the run, if action succeeds
	why       error         // for the Event, if the outcome needs one
}

type action int

const (
	freeKey     action = iota // release it: a retry runs
	storeRecord               // settle it with a record: a retry is answered with that
	abandonKey                // neither: it stays taken until the lease, and any hold after it, has expired
)

// Why the outcome of a run is not Executed. A panic's value is left out: it may hold what must not be logged.
var (
	errNoReturn    = errors.New("middleware: the handler panicked, or called runtime.Goexit")
	errNoDecision  = errors.New("middleware: the function of WithStored, a journal or a hook of the Redis client panicked, or called runtime.Goexit")
	errSaidUnknown = errors.New("middleware: the handler called Execution.Unknown")
	errBroken      = errors.New("middleware: the response is shorter or longer than its Content-Length")
	errExpired     = errors.New("middleware: the handler returned without a response after its context was done")
	errOutsideTx   = errors.New("middleware: the handler answered outside of the journal's transaction: Redis alone protects its effect")
	errBypassed    = errors.New("middleware: the handler answered on another ResponseWriter than the one that it was given, " +
		"so its response cannot be stored")
)

// decideEnding decides what the run of a handler that returned does with its key.
func (c *call) decideEnding(verdict capture.Verdict) ending {
	if t := c.running.exec.journaled; t != nil && t.phase == txCommitted {
		return t.committedEnding()
	}
	decision := c.running.exec.decision()
	switch {
	case decision.unknown:
		return c.unknownEnding(decision, errSaidUnknown)
	case verdict == capture.Bypassed:
		return c.tombstoneEnding(decision.retention, errBypassed)
	case decision.discard:
		return ending{action: freeKey, outcome: Freed}
	case verdict == capture.Expired:
		return c.unknownEnding(decision, fmt.Errorf("%w: %w", errExpired, context.Cause(&c.running.ctx)))
	case verdict == capture.Broken:
		return c.unknownEnding(decision, errBroken)
	case verdict == capture.Partial:
		return c.tombstoneEnding(decision.retention, nil)
	}
	status := c.responseStatus()
	if decision.keep || c.shouldStore(status) || c.running.exec.atMostOnce && status >= 500 {
		return c.responseEnding(decision.retention)
	}
	return ending{action: freeKey, outcome: Freed}
}

// committedEnding is the ending of a run whose transaction is committed: its record is stored, whatever the handler has
// done since.
func (t *journaledRun) committedEnding() ending {
	end := ending{action: storeRecord, encoded: t.record, retention: t.retained, outcome: Executed}
	if t.cookiesDropped {
		end.outcome = CookiesDropped
	}
	return end
}

// unknownEnding returns the ending of a run whose outcome is unknown. Its key is not freed: a retry that comes at once
// must not run. If the key must never be freed (Keep was called, or a byte has left), a tombstone is stored. With
// WithAtMostOnce the hold, or in an intent journal the row, already keeps the key, and also records that the outcome is
// unknown.
func (c *call) unknownEnding(decision decision, why error) ending {
	if decision.keep && !c.running.exec.atMostOnce {
		end := c.tombstoneEnding(max(decision.retention, c.retention), why)
		end.outcome = Unknown
		return end
	}
	return ending{action: abandonKey, outcome: Unknown, why: why}
}

// tombstoneEnding returns the ending that stores that the request was processed, without a response to replay.
func (c *call) tombstoneEnding(retention time.Duration, why error) ending {
	tombstone := c.newRecord(response.Response{Status: c.responseStatus()}, c.timing.completed)
	tombstone.Tombstone = true
	return ending{action: storeRecord, record: tombstone, retention: retention, outcome: NotStored, why: why}
}

// responseStatus returns the status that the handler has set, 0 if that is not known.
func (c *call) responseStatus() int {
	if c.shadow {
		return c.watched.tee.Status()
	}
	return c.running.writer.Status()
}

func (c *call) responseEnding(retention time.Duration) ending {
	if c.shadow {
		return c.digestEnding(retention, c.watched.tee.Digest())
	}
	stored, cookiesDropped := c.running.writer.Response(c.cookies)
	end := ending{action: storeRecord, record: c.newRecord(stored, c.timing.completed), retention: retention, outcome: Executed}
	if !end.record.IsReadable() {
		return c.tombstoneEnding(retention, nil)
	}
	if cookiesDropped {
		end.outcome = CookiesDropped
	}
	if t := c.running.exec.journaled; t != nil && !t.run.Intent {
		end.why = errOutsideTx
	}
	return end
}

// digestEnding stores what a duplicate is compared with; an empty digest is never compared.
func (c *call) digestEnding(retention time.Duration, digest []byte) ending {
	stored := response.Response{Status: c.watched.tee.Status(), Body: digest}
	end := ending{action: storeRecord, record: c.newRecord(stored, c.timing.completed), retention: retention, outcome: Executed}
	if c.watched.tee.SetCookies() && !c.cookies {
		end.outcome = CookiesDropped
	}
	return end
}

// applyEnding stores the record in Redis, frees the key or abandons it. lease is nil for a run that a journal allowed while
// Redis did not answer.
func (c *call) applyEnding(lease *lock.Lease, end *ending) (err error) {
	if lease == nil {
		end.size = len(end.encoded)
		return nil
	}
	switch {
	case end.action == freeKey:
		err = lease.Release(c.detached())
	case end.encoded != nil:
		end.size = len(end.encoded)
		err = settleEncoded(c.detached(), lease, end.encoded, end.retention)
	case end.action == storeRecord:
		err = lease.SettleAppend(c.detached(), end.record.Room(), func(b []byte) []byte {
			encoded := c.codec.Append(b, c.running.writer.Scratch(), c.identity.storageKey, end.record)
			end.size = len(encoded) - len(b)
			return encoded
		}, end.retention)
	case end.action == abandonKey:
		lease.Abandon()
		err = lease.Err() // for the Event only: after ErrLost another request may have run, too
	}
	if err != nil && !errors.Is(err, lock.ErrPending) && !end.inJournal {
		end.size = 0
	}
	return err
}

// settleEncoded settles the key with a record that is encoded already.
func settleEncoded(ctx context.Context, lease *lock.Lease, encoded []byte, retention time.Duration) error {
	return lease.SettleAppend(ctx, len(encoded), func(b []byte) []byte { return append(b, encoded...) }, retention)
}

// outcomeAfter returns the outcome of the run when applyEnding has returned err.
func (e *ending) outcomeAfter(err error) Outcome {
	switch {
	case e.inJournal:
		return e.outcome
	case errors.Is(err, lock.ErrLost) && e.action != abandonKey:
		return LeaseLost
	case err != nil && e.outcome != Unknown && e.action == storeRecord:
		return NotStored
	}
	return e.outcome
}
