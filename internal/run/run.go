package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Run is a request for a run of an operation under a key, and then the run. The caller sets the Request. If Begin returns
// Begun, the same goroutine calls Start, CutOff and Conclude, in this order.
type Run struct {
	Request

	guard      *Guard
	caller     context.Context // its values are those of the run; of its ends only the deadline counts
	lease      *lock.Lease     // nil without one: then the journal alone protects the run
	claimErr   error           // why there is no lease
	protection protection

	control   Control
	ctx       runContext
	product   Product
	completed time.Time // when the operation ended
}

// protection is what decides about the key of a run.
type protection interface {
	// admit returns Begun if the run may begin. If not, it gives the key up, and returns what the caller gets instead.
	admit(r *Run) Result
	// start completes the run's context, and returns the one that the operation gets.
	start(r *Run) context.Context
	// hasRow reports whether an intent journal has a row of the run.
	hasRow() bool
	// cutOff is called when the operation has ended.
	cutOff()
	// conclude does with the key what follows from end, and returns what the caller gets.
	conclude(r *Run, end Ending) Result
}

// Ending is how an operation has ended.
type Ending struct {
	How How
	Err error // for the observer, if the outcome is not Executed: why
}

// Control returns the Control of the run's operation.
func (r *Run) Control() *Control { return &r.control }

// Fence returns the fencing number of the run's lease, and 0 without one.
func (r *Run) Fence() int64 {
	if r.lease == nil {
		return 0
	}
	return r.lease.Fence()
}

// IsStrict reports whether a failure of the run is kept, and the run is not repeated if its outcome is unknown. That is
// so with Policy.AtMostOnce, and if an intent journal has stored a row of the run.
func (r *Run) IsStrict() bool { return r.guard.AtMostOnce || r.protection.hasRow() }

// Start returns the context for the operation, whose product this is. The context ends at the run's limit and at the
// caller's deadline, when the lease is lost unless a journal decides, and when CutOff is called. It does not end with
// the caller's context.
func (r *Run) Start(product Product) context.Context {
	r.product = product
	r.Phases.Operation.Start = time.Now()
	r.ctx.run = r
	return r.protection.start(r)
}

// OutsideJournal returns ctx for an operation without a journal. If caller, the context of its caller, belongs to a run
// with a journal, the operation is no part of that run.
func OutsideJournal(ctx, caller context.Context) context.Context {
	if _, _, isInside := journal.FromContext(caller); isInside {
		return journal.NewContext(ctx, nil)
	}
	return ctx
}

// capByCaller returns deadline, or the deadline of the caller's context if that is earlier.
func (r *Run) capByCaller(deadline time.Time) time.Time {
	if outer, ok := r.caller.Deadline(); ok && outer.Before(deadline) {
		return outer
	}
	return deadline
}

// CutOff ends the operation: later calls of goroutines that it has left behind have no effect. It waits for a transaction
// that is being committed. It returns why the operation's context was done before, or nil. CutOff must be called even if
// the operation has panicked; a second call does nothing.
func (r *Run) CutOff() (expired error) {
	if !r.completed.IsZero() {
		return nil
	}
	p := &r.Phases.Operation
	*p = PhaseSince(p.Start)
	r.completed = p.End()
	r.control.CutOff()
	r.protection.cutOff()
	return r.ctx.end(r.completed)
}

// Conclude does with the key what follows from the ending, and returns what the caller gets: Own, or what replaces the
// run's own product: another has the key, or it is not known whether one has, or whether the transaction was committed.
//
// From now on the lease is renewed until the key is settled. If Conclude does not return, because a journal, a product or
// a hook of the Redis client panics, the lease runs out. Conclude may then be called again.
func (r *Run) Conclude(end Ending) Result {
	concluded := false
	defer func() {
		if !concluded {
			r.abandon()
		}
	}()
	r.abandonAt(time.Time{})
	result := r.protection.conclude(r, end)
	concluded = true
	result.Err = errors.Join(result.Err, r.claimErr)
	return result
}

// abandonAt stops the renewals of the lease from t on. The zero time means never.
func (r *Run) abandonAt(t time.Time) {
	if r.lease != nil {
		r.lease.AbandonAt(t)
	}
}

// abandon lets the lease run out.
func (r *Run) abandon() {
	if r.lease != nil {
		r.lease.Abandon()
	}
}

// drop releases the key in the background.
func (r *Run) drop() {
	if r.lease != nil {
		r.lease.ReleaseInBackground(r.detached())
	}
}

// decision is what follows from an Ending: what the run does with its key, and what the observer is told.
type decision struct {
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
		f.RuleKeeps = r.product.Keeps(f.Strict)
	}
	action, unknown := Decide(f)
	d := decision{action: action, retention: r.guard.keepFor(retention)}
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

// leavesRecord reports whether d leaves a record or a tombstone behind.
func (d *decision) leavesRecord() bool {
	return d.action == Store || d.action == Tombstone || d.action == UnknownTombstone
}

// errDeclaredUnknown is the observer's error for an operation that does not know its outcome.
var errDeclaredUnknown = errors.New("onceguard: the operation declared its outcome unknown (Execution.Unknown, once.Unknown)")

// tombstone returns the record of action, which is Tombstone or UnknownTombstone. isKnown reports whether the operation's
// outcome is known. It is unknown after Keep and a panic, and yet action is Tombstone, because Keep means that the
// operation took effect.
func (r *Run) tombstone(action Action, isKnown bool) record.Record {
	rec := r.newRecord(r.completed)
	rec.Tombstone, rec.Unknown, rec.Head = true, action == UnknownTombstone, r.product.Tombstone(isKnown)
	return rec
}

// shorten returns the tombstone that takes the place of rec if there is no room for it.
func (r *Run) shorten(rec record.Record) record.Record {
	if !rec.Tombstone {
		rec.Tombstone, rec.Head, rec.Body = true, r.product.Tombstone(true), nil
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

// encodeDecision encodes the record of d, if it has one: the journal and Redis get the same bytes.
func (r *Run) encodeDecision(d *decision) {
	if d.leavesRecord() {
		d.encoded = r.encode(&d.record)
		d.size = len(d.encoded)
	}
}

// own returns the result of a run whose caller gets its own product. err is what its action on the key has returned.
func (r *Run) own(d *decision, err error) Result {
	result := Result{Kind: Own, Outcome: d.outcomeAfter(err), Err: errors.Join(d.err, err)}
	if err == nil || errors.Is(err, lock.ErrPending) || d.ended {
		result.Size = d.size
	}
	if d.action != Leave {
		result.Settle = PhaseSince(r.completed)
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
	case err != nil && d.leavesRecord() && d.outcome != OutcomeRunUnknown && d.outcome != OutcomePanicked:
		return OutcomeNotStored
	}
	return d.outcome
}
