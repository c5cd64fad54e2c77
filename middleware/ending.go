package middleware

// The ending of a run: what the run does with its key. From top to bottom:
//
//	decideEnding         decides the ending when the handler has returned
//	conclude             applies it (run.go)
//	  concludeJournaled    first to the journal, if there is one (journaled.go)
//	  applyEnding          to the key in Redis: releases it, settles it, or abandons the lease
//	  reclaimOrGiveWay     if the key was lost (lost.go)
//	outcomeAfter         returns the outcome for the Event

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

// ending is what a run does with its key, and what is known about that.
type ending struct {
	action    action
	record    record.Record // for storeRecord, if encoded is nil
	encoded   []byte        // the record, if it is encoded already: for a journal, or in shadow
	inJournal bool          // the journal has it, so that outcome is true whatever happens in Redis
	size      int           // of the record in bytes, once it is stored or pending; for the Event
	retention time.Duration // of the record
	outcome   Outcome       // of the run, if action succeeds
	why       error         // for the Event: why the outcome is not Executed; nil if the outcome says it all
}

type action int

const (
	abandonKey  action = iota // leave the key: it stays taken until its lease, and then any hold, has expired
	storeRecord               // settle the key with a record, which answers a retry
	freeKey                   // release the key: a retry runs; not the zero action, which must do no harm
)

// Why the outcome of a run is not Executed. A panic's value is left out: it may hold what must not be logged.
var (
	errNoReturn     = errors.New("middleware: the handler panicked, or called runtime.Goexit")
	errNotConcluded = errors.New("middleware: the function of WithStored, a journal or a hook of the Redis client panicked, " +
		"or called runtime.Goexit")
	errSaidUnknown = errors.New("middleware: the handler called Execution.Unknown")
	errBroken      = errors.New("middleware: the response is shorter or longer than its Content-Length")
	errExpired     = errors.New("middleware: the handler returned without a response after its context was done")
	errOutsideTx   = errors.New("middleware: the handler answered outside of the journal's transaction: " +
		"Redis alone protects its effect")
	errBypassed = errors.New("middleware: the handler answered on a ResponseWriter other than the one that it was given, " +
		"so its response cannot be stored")
)

// decideEnding decides the ending of a run whose handler has returned.
func (c *call) decideEnding(verdict capture.Verdict) ending {
	if j := c.journaled(); j != nil && j.phase == txCommitted {
		return c.committedEnding()
	}
	d := c.running.exec.decision()
	switch {
	case d.unknown:
		return c.unknownEnding(d, errSaidUnknown)
	case verdict == capture.Bypassed:
		return c.tombstoneEnding(d.retention, errBypassed)
	case d.discard:
		return ending{action: freeKey, outcome: Freed}
	case verdict == capture.LeftOpen && d.kept:
		return c.tombstoneEnding(d.retention, capture.WhyLeftOpen(c.w))
	case verdict == capture.LeftOpen:
		return c.unknownEnding(d, capture.WhyLeftOpen(c.w))
	case verdict == capture.Expired:
		return c.unknownEnding(d, fmt.Errorf("%w: %w", errExpired, context.Cause(&c.running.ctx)))
	case verdict == capture.Broken:
		return c.unknownEnding(d, errBroken)
	case verdict == capture.Partial:
		return c.tombstoneEnding(d.retention, nil)
	case d.neverFree, c.isStored(c.responseStatus()):
		return c.responseEnding(d.retention)
	}
	return ending{action: freeKey, outcome: Freed}
}

// isStored reports whether a response with this status is stored. With WithAtMostOnce or an intent journal a 5xx always
// is, because a handler that fails can rarely be sure that nothing has happened.
func (c *call) isStored(status int) bool {
	return c.shouldStore(status) || c.running.exec.atMostOnce && status >= 500
}

// committedEnding returns the ending of a run whose transaction is committed, whatever its handler has done since.
func (c *call) committedEnding() ending {
	j := c.journaled()
	end := ending{action: storeRecord, encoded: j.record, retention: j.retained, outcome: Executed}
	if j.cookiesDropped {
		end.outcome = CookiesDropped
	}
	return end
}

// unknownEnding returns the ending of a run whose outcome is unknown. The key is left to its lease and hold, so that an
// immediate retry does not run. If Keep was called or a byte was sent, no retry may ever run, so unknownEnding stores a
// tombstone. With WithAtMostOnce or an intent journal no tombstone is needed: the hold in Redis or the row in the
// journal keeps the key, and also records that the outcome is unknown.
func (c *call) unknownEnding(d decision, why error) ending {
	if d.neverFree && !c.running.exec.atMostOnce {
		end := c.unknownTombstone(d, why)
		end.record.Unknown = !d.kept // by Keep the handler has said that it took effect
		return end
	}
	return ending{action: abandonKey, outcome: Unknown, why: why}
}

// unknownTombstone returns the ending that stores that the request was begun and must not run again, although its outcome
// is unknown. It stores no status, which may not have been sent. A short Retain does not count: it was meant for the
// response.
func (c *call) unknownTombstone(d decision, why error) ending {
	end := c.tombstoneEnding(max(d.retention, c.retention), why)
	end.outcome, end.record.Unknown, end.record.Status = Unknown, true, 0
	return end
}

// tombstoneEnding returns the ending that stores that the request was processed, without a response to replay.
func (c *call) tombstoneEnding(retention time.Duration, why error) ending {
	tombstone := c.newRecord(&response.Response{Status: c.responseStatus()}, c.timing.completed)
	tombstone.Tombstone = true
	return ending{action: storeRecord, record: tombstone, retention: retention, outcome: NotStored, why: why}
}

// responseStatus returns the status that the handler has set, or 0 if it is not known.
func (c *call) responseStatus() int {
	if c.shadow {
		return c.watched.tee.Status()
	}
	return c.running.writer.Status()
}

// responseEnding returns the ending that stores the response, or a tombstone if readers would refuse the record.
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
	if j := c.journaled(); j != nil && !j.run.Intent {
		end.why = errOutsideTx
	}
	return end
}

// digestEnding returns the ending that stores, in shadow, what a duplicate's response is compared with. An empty digest
// is never compared.
func (c *call) digestEnding(retention time.Duration, digest []byte) ending {
	stored := &response.Response{Status: c.watched.tee.Status(), Body: digest}
	end := ending{action: storeRecord, record: c.newRecord(stored, c.timing.completed), retention: retention, outcome: Executed}
	if c.watched.tee.SetsCookies() && !c.cookies {
		end.outcome = CookiesDropped
	}
	return end
}

// applyEnding applies end to the key in Redis. lease is nil if only the journal protected the run: then there is
// nothing to do.
func (c *call) applyEnding(lease *lock.Lease, end *ending) (err error) {
	if lease == nil {
		end.size = len(end.encoded)
		return nil
	}
	switch end.action {
	case freeKey:
		err = lease.Release(c.detached())
	case storeRecord:
		err = c.settle(lease, end)
	case abandonKey:
		lease.Abandon()
		err = lease.Err() // for the Event only: after ErrLost another request may have run, too
	}
	return err
}

// settle stores the record in Redis, and sets end.size. If the record is stored nowhere, the size is 0.
func (c *call) settle(lease *lock.Lease, end *ending) (err error) {
	if end.encoded != nil {
		end.size = len(end.encoded)
		err = settleEncoded(c.detached(), lease, end.encoded, end.retention)
	} else {
		err = lease.SettleAppend(c.detached(), end.record.Room(), func(b []byte) []byte {
			encoded := c.codec.Append(b, c.running.writer.Scratch(), c.identity.storageKey, &end.record)
			end.size = len(encoded) - len(b)
			return encoded
		}, end.retention)
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

// outcomeAfter returns the outcome of the run after conclude has returned err. ErrLost is in err also if the run has
// claimed its key again: another may have run.
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
