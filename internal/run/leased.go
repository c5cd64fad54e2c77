package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// leased is the protection by a lease alone.
type leased struct{}

func (leased) admit(r *Run) Result {
	// So that the lease also runs out if the operation never starts.
	r.renewUntil(r.Phases.Claim.end().Add(r.guard.MaxDuration))
	return Result{Kind: Begun}
}

func (leased) start(r *Run) context.Context {
	deadline := r.Phases.Operation.Start.Add(r.guard.MaxDuration)
	r.renewUntil(deadline)
	r.ctx.lease, r.ctx.deadline = r.lease, r.capByCaller(deadline)
	return OutsideJournal(&r.ctx, r.caller)
}

func (leased) hasRow() bool { return false }

func (leased) cutOff() {}

func (leased) conclude(r *Run, end Ending) Result {
	d := r.decide(end)
	err := d.apply()
	if errors.Is(err, lock.ErrLost) && d.action != Leave && !r.product.Sent() {
		return r.reclaim(&d, err)
	}
	return d.own(err)
}

// errLate is the observer's error for a run whose key the background settles.
var errLate = fmt.Errorf("onceguard: Redis did not answer in time; storing goes on: %w", lock.ErrPending)

// ConcludeWithin is Conclude for a run that only watches: it has a lease and no journal, and nothing replaces its product.
// It returns after limit, and the background goes on. The outcome is then the one that the run has if Redis answers late.
func (r *Run) ConcludeWithin(limit time.Duration, end Ending) Result {
	d := r.decide(end)
	d.encode()
	r.renewUntil(time.Time{})
	applied := make(chan error, 1)
	r.guard.locker.Go(func(context.Context) { applied <- d.apply() })
	var err error
	select {
	case err = <-applied:
	case <-time.After(limit):
		err = errLate
	}
	r.guard.redis.tripAfter(r.caller, err)
	return d.own(err)
}

// reclaim ends a run that lost its key before any of its product was sent: another request, an operator or another program
// has written the key. By now the key may be free again, and the next retry would run. So reclaim claims the key again.
//
//   - If the claim is granted, it applies the decision. Unless that loses the key again, the caller gets the run's own
//     product.
//   - Otherwise the caller gets what the key holds, or a reason, so that it does not get a product that differs from the
//     stored one.
//
// Another run may have taken effect, too, so the outcome is OutcomeLeaseLost in any case.
func (r *Run) reclaim(d *decision, lost error) Result {
	lost = fmt.Errorf("onceguard: a run that %v has lost its key: %w", r.product, lost)
	found, err := r.guard.sendClaim(&r.Request)
	if err == nil && found.State == lock.Granted {
		r.lease = found.Lease // which Conclude leaves after a panic
		err = d.apply()
		if !errors.Is(err, lock.ErrLost) {
			result := d.own(err)
			result.Outcome, result.Err = OutcomeLeaseLost, errors.Join(lost, result.Err)
			return result
		}
	}
	switch { // err is ErrLost if the key was lost a second time
	case errors.Is(err, lock.ErrForeign), errors.Is(err, lock.ErrSettled):
		return r.asDuplicate(unclaimed(err), lost)
	case err != nil: // not Unavailable, which invites a retry: it would run if the key is free
		return r.asDuplicate(refuse(Unknown, err), lost)
	}
	return r.asDuplicate(r.guard.byRedis(&r.Request, &found), lost)
}

// asDuplicate returns the result of a run that lost its key. usual is what a duplicate would get. If usual is a mismatch,
// the run's caller gets Unknown instead: this run has happened, so usual would mislead.
func (r *Run) asDuplicate(usual Result, lost error) Result {
	if usual.isMismatch() {
		usual.Kind = Unknown
	}
	usual.Outcome, usual.Err, usual.Settle = OutcomeLeaseLost, errors.Join(lost, usual.Err), PhaseSince(r.completed)
	return usual
}
