package run

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/lock"
)

// decision is what follows from an Ending: what the run does with its key, and what the observer is told.
type decision struct {
	run       *Run
	action    Action
	record    record.Record // if the action stores one
	encoded   []byte        // the record, once a journal has needed it
	size      int           // of the encoded record, once it is known
	retention time.Duration // how long the record is kept
	outcome   Outcome       // if the action succeeds
	err       error         // why the outcome is not Executed
	ended     bool          // the run has ended in the journal, so outcome holds whatever happens in Redis
}

// decide returns what the run does with its key.
func (r *Run) decide(end Ending) decision {
	wish, sent, retention := r.control.Said()
	f := Facts{How: end.How, Wish: wish, Sent: sent, Strict: r.IsStrict()}
	if asks := f.How == Whole && f.Wish == WishNothing && !f.Sent; asks {
		f.RuleStores = r.product.Stores(f.Strict)
	}
	action, unknown := Decide(f)
	d := decision{run: r, action: action, retention: r.guard.retentionFor(retention)}
	switch {
	case end.How == Interrupted: // then unknown, too
		d.outcome, d.err = OutcomePanicked, end.Err
	case wish == WishUnknown: // likewise
		d.outcome, d.err = OutcomeRunUnknown, errDeclaredUnknown
		if end.Err != nil {
			d.err = fmt.Errorf("%w: %w", errDeclaredUnknown, end.Err)
		}
	case unknown:
		d.outcome, d.err = OutcomeRunUnknown, end.Err
	case action == Free && end.How == Forbidden:
		d.outcome, d.err = OutcomeFreed, end.Err
	case action == Free:
		d.outcome = OutcomeFreed
	case action == Tombstone:
		d.outcome, d.err = OutcomeNotStored, end.Err
	default:
		d.outcome = OutcomeExecuted
	}
	if unknown { // a short Retain was meant for the product
		d.retention = max(d.retention, r.guard.Retention)
	}
	switch action {
	case Store:
		d.record = r.newRecord(r.completed)
		var ok bool
		if d.record.Head, d.record.Body, ok = r.product.Payload(); !ok { // it cannot be stored
			d.action, d.outcome, d.record = Tombstone, OutcomeNotStored, r.tombstone(Tombstone, true)
		}
	case Tombstone, UnknownTombstone:
		d.record = r.tombstone(action, !unknown)
	}
	return d
}

// storesRecord reports whether d leaves a record or a tombstone behind.
func (d *decision) storesRecord() bool {
	return d.action == Store || d.action == Tombstone || d.action == UnknownTombstone
}

// errDeclaredUnknown is the observer's error for an operation that does not know its outcome.
var errDeclaredUnknown = errors.New("onceguard: the operation declared its outcome unknown (Execution.Unknown, once.Unknown)")

// tombstone returns the record of action, which is Tombstone or UnknownTombstone. isKnown reports whether the operation's
// outcome is known. After Keep and a panic the outcome is unknown, but Keep asks for a Tombstone.
func (r *Run) tombstone(action Action, isKnown bool) record.Record {
	rec := r.newRecord(r.completed)
	rec.Tombstone, rec.Unknown, rec.Head = true, action == UnknownTombstone, r.product.Tombstone(isKnown)
	return rec
}

// shorten returns the tombstone that takes the place of d's record if there is no room for it.
func (d *decision) shorten() record.Record {
	rec := d.record
	if !rec.Tombstone {
		rec.Tombstone, rec.Head, rec.Body = true, d.run.product.Tombstone(true), nil
	}
	return rec
}

// newRecord returns a record without a payload.
func (r *Run) newRecord(completed time.Time) record.Record {
	rec := record.Record{Fingerprint: r.Fingerprints[0], Completed: completed}
	if r.Traceparent != nil {
		rec.Trace = r.Traceparent()
	}
	return rec
}

// encode returns the bytes of the record, in new memory.
func (r *Run) encode(rec *record.Record) []byte {
	return r.guard.Codec.Append(make([]byte, 0, rec.Room()), r.StorageKey, rec)
}

// encode encodes the record of d, if it has one: the journal and Redis get the same bytes.
func (d *decision) encode() {
	if d.storesRecord() {
		d.encoded = d.run.encode(&d.record)
		d.size = len(d.encoded)
	}
}

// own returns the result of a run whose caller gets its own product. err is what its action on the key has returned.
func (d *decision) own(err error) Result {
	result := Result{Kind: Own, Outcome: d.outcomeAfter(err), Err: errors.Join(d.err, err)}
	if err == nil || errors.Is(err, lock.ErrPending) || d.ended {
		result.Size = d.size
	}
	if d.action != Leave {
		result.Settle = PhaseSince(d.run.completed)
	}
	return result
}

// outcomeAfter returns the outcome of the run after its action has returned err.
func (d *decision) outcomeAfter(err error) Outcome {
	switch {
	case d.ended:
		return d.outcome
	case errors.Is(err, lock.ErrLost) && d.action != Leave:
		return OutcomeLeaseLost
	case err != nil && d.storesRecord() && d.outcome != OutcomeRunUnknown && d.outcome != OutcomePanicked:
		return OutcomeNotStored
	}
	return d.outcome
}

// apply applies d to the key in Redis, if the run has a lease.
func (d *decision) apply() error {
	r := d.run
	switch {
	case r.lease == nil:
		return nil
	case d.action == Leave:
		r.lease.Abandon()
		return r.lease.Err() // for the observer only: after ErrLost another may have run, too
	case d.action == Free:
		return r.lease.Release(r.detached())
	case d.encoded != nil:
		return r.lease.Settle(r.detached(), d.encoded, d.retention)
	}
	// SettleAppend saves a copy of the record: a request would take 1 MiB more memory. In an outage a tombstone takes the
	// place of a record for which there is no room.
	return r.lease.SettleAppend(r.detached(), d.record.Room(), func(b []byte) []byte {
		encoded := r.guard.Codec.Append(b, r.StorageKey, &d.record)
		d.size = len(encoded) - len(b)
		return encoded
	}, func(b []byte) []byte {
		short := d.shorten()
		return r.guard.Codec.Append(b, r.StorageKey, &short)
	}, d.retention)
}
