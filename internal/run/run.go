package run

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/internal/inrun"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Run is a request for a run of an operation under a key, and then the run. The caller sets the Request. If Begin returns
// Begun, the same goroutine calls Start, CutOff and Conclude, in this order.
type Run struct {
	Request

	guard      *Guard
	lease      *lock.Lease // nil without one: then the journal alone protects the run
	claimErr   error       // why there is no lease
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
// caller's deadline, when the lease is lost unless a journal decides, and when CutOff is called. A cancellation of the
// caller's context does not end it.
func (r *Run) Start(product Product) context.Context {
	r.product = product
	r.Phases.Operation.Start = time.Now()
	r.ctx.req = &r.Request
	return r.protection.start(r)
}

// OutsideJournal returns ctx for an operation without a journal. If caller, the context of its caller, belongs to a run
// with a journal, the operation is no part of that run.
func OutsideJournal(ctx, caller context.Context) context.Context {
	if _, _, isInside := journal.FromContext(caller); isInside {
		return context.WithValue(ctx, inrun.Key{}, nil)
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
	r.completed = p.end()
	r.control.CutOff()
	r.protection.cutOff()
	return r.ctx.end(r.completed)
}

// Conclude does with the key what follows from the ending, and returns what the caller gets: Own, or what replaces the
// run's own product: another has the key, or it is not known whether one has, or whether the transaction was committed.
//
// From now on the run's limit no longer ends the renewal of the lease: the decision does. If Conclude does not return,
// because a journal or a product panics, the lease runs out, and Conclude may be called again.
func (r *Run) Conclude(end Ending) Result {
	concluded := false
	defer func() {
		if !concluded {
			r.leave()
		}
	}()
	r.renewUntil(time.Time{})
	result := r.protection.conclude(r, end)
	concluded = true
	result.Err = errors.Join(result.Err, r.claimErr)
	return result
}

// renewUntil stops the renewals of the lease from t on. The zero time means never.
func (r *Run) renewUntil(t time.Time) {
	if r.lease != nil {
		r.lease.AbandonAt(t)
	}
}

// leave lets the lease run out, and with it the key unless it has a hold: see Leave.
func (r *Run) leave() {
	if r.lease != nil {
		r.lease.Abandon()
	}
}

// releaseInBackground releases the key.
func (r *Run) releaseInBackground() {
	if lease, ctx := r.lease, r.detached(); lease != nil {
		r.guard.locker.Go(func(context.Context) { _ = lease.Release(ctx) })
	}
}

// Why a run was interrupted. The value of the panic is left out: it may hold what must not be logged.
var (
	ErrNoReturn     = errors.New("onceguard: the operation panicked, or called runtime.Goexit")
	errNotConcluded = errors.New("onceguard: a codec, a journal, or the function of WithStored, WithNothingHappened or " +
		"WithTraceparent panicked, or called runtime.Goexit")
)

// Do calls operation, which calls Start and CutOff, and concludes the run with what ending returns. After a panic or a
// runtime.Goexit, which propagates, it aborts the product, concludes the run as interrupted, and calls report with the
// result for the observer, even if a journal panics once more.
func (r *Run) Do(operation func(), ending func() Ending, report func(Result)) (result Result) {
	why, returned := ErrNoReturn, false
	defer func() {
		if !returned {
			r.interrupt(why, report)
		}
	}()
	operation()
	why = errNotConcluded // what panics from now on is not the operation
	result = r.Conclude(ending())
	returned = true
	return result
}

// interrupt is what Do does after a panic.
func (r *Run) interrupt(why error, report func(Result)) {
	interrupted := Result{Outcome: OutcomePanicked, Err: why}
	defer func() { report(interrupted) }()
	r.CutOff()
	r.product.Abort()
	result := r.Conclude(Ending{How: Interrupted, Err: why})
	if result.Kind != Own { // the client gets nothing of it
		result.Err = errors.Join(why, result.Err)
		if result.Outcome != OutcomeLeaseLost {
			result.Outcome = OutcomePanicked
		}
	}
	interrupted = result
}
