package run

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// Begin claims the key of r and, if it is free, begins the run. It sends nothing if ctx has passed its deadline, because
// the run would end at once. Otherwise the end of ctx does not matter.
//
// A caller that gets InFlight may call Wait, once it has freed its input. The request must not change until the run
// is concluded.
func (g *Guard) Begin(ctx context.Context, r *Run) Result {
	req := &r.Request
	r.guard, req.caller = g, ctx
	found, err := g.claim(req)
	req.StorageKey = cmp.Or(req.StorageKey, found.Key)
	g.StorageKey(req)
	switch g.classify(req, &found, err) {
	case claimGranted:
		return r.begin(found.Lease, nil)
	case journalAlone:
		if errors.Is(err, lock.ErrNoRedis) {
			err = nil
		}
		return r.begin(nil, err)
	case claimWaived:
		return refuse(Unprotected, err)
	case claimFailed:
		return unclaimed(err)
	case claimInDoubt:
		return g.lookInJournal(req, unclaimed(err))
	case claimTaken:
		return g.byRedis(req, &found)
	}
	result := g.lookInJournal(req, g.ifNoRow(req, &found))
	if result.Kind == NoRecord { // the run that has left its claim has not happened
		return r.beginAfter()
	}
	return result
}

// claimed is what has come of a claim, or of the look at a key that is too old. The first row that fits counts:
//
//	journalAlone    without Redis, or Redis does not answer and Policy.mayRunWithoutLease: the journal protects the run alone
//	claimInDoubt    the same for a key that is too old; or Redis cannot confirm its record: the journal may have it
//	claimWaived     Redis does not answer, and Policy.mayFailOpen
//	claimFailed     any other error
//	claimGranted    the request has the key
//	claimLeft       the key is free and too old, or an earlier run has left it
//	claimTaken      another run has the key, or it holds a record
type claimed uint8

const (
	journalAlone claimed = iota
	claimInDoubt
	claimWaived
	claimFailed
	claimGranted
	claimLeft
	claimTaken
)

// classify returns what has come of a claim, which has returned found and err.
func (g *Guard) classify(req *Request, found *lock.Claim, err error) claimed {
	isAlone := errors.Is(err, lock.ErrNoRedis) || err != nil && g.mayRunWithoutLease(req.caller, err)
	switch {
	case isAlone && !req.TooOld:
		return journalAlone
	case isAlone, errors.Is(err, lock.ErrSettled):
		return claimInDoubt
	case err != nil && !req.TooOld && g.mayFailOpen(req.caller, err):
		return claimWaived
	case err != nil:
		return claimFailed
	case found.State == lock.Granted:
		return claimGranted
	case found.State == lock.Abandoned, found.State == lock.Free:
		return claimLeft
	}
	return claimTaken
}

// beginAfter begins a run under a key whose claim was abandoned by a run with a journal, which has no row of it: see
// ifNoRow. It frees that claim, and claims the key again.
func (r *Run) beginAfter() Result {
	g, req, ctx := r.guard, &r.Request, r.detached()
	info, err := g.locker.Inspect(ctx, req.StorageKey)
	if err == nil && info.State == lock.Abandoned {
		err = g.free(ctx, req.StorageKey, info.Token, func(note []byte) error {
			if theirs, err := g.Codec.DecodeNote(req.StorageKey, note); err != nil || !theirs.Journaled {
				return errors.Join(lock.ErrChanged, err)
			}
			return nil
		})
	}
	if err != nil && !errors.Is(err, lock.ErrChanged) && !errors.Is(err, lock.ErrLive) {
		return unclaimed(err)
	}
	found, err := g.sendClaim(req)
	switch {
	case err != nil:
		return unclaimed(err)
	case found.State == lock.Granted:
		return r.begin(found.Lease, nil)
	}
	return g.byRedis(req, &found)
}

// begin begins the run if its protection admits it. Without a lease the journal alone protects the run: claimErr is why
// Redis has granted none, and nil without Redis.
func (r *Run) begin(lease *lock.Lease, claimErr error) Result {
	r.lease, r.claimErr, r.control.retention = lease, claimErr, r.guard.Retention
	if r.guard.Journal == nil {
		r.protection = leased{}
	} else {
		r.protection = newJournaled(r)
	}
	if err := deadlineError(r.caller); err != nil {
		r.releaseInBackground()
		return refuse(NotBegun, errors.Join(err, claimErr))
	}
	result := r.protection.admit(r)
	if result.Kind != Begun { // Conclude joins them
		result.Err = errors.Join(result.Err, claimErr)
	}
	return result
}

// claim claims the key, or looks up one that is too old. It sends nothing if the caller's deadline has passed, or during
// the pause after a failure of Redis.
func (g *Guard) claim(req *Request) (found lock.Claim, err error) {
	ctx := req.caller
	if err = deadlineError(ctx); err != nil {
		return found, err
	}
	pauses := (g.Pauses || g.mayRunWithoutLease(ctx, errRedisPaused)) && !g.locker.IsNone()
	if pauses && g.redis.open() {
		return found, errRedisPaused
	}
	start := time.Now()
	if req.TooOld {
		found, err = g.locker.Look(req.detached(), req.Key)
	} else {
		found, err = g.sendClaim(req)
	}
	req.Phases.Claim = PhaseSince(start)
	if pauses {
		g.redis.tripAfter(ctx, err)
	}
	return found, err
}

// mayFailOpen reports whether the operation may run although the claim failed with err. ErrLost means that the claim
// was written and is gone, so another caller may have the key.
func (p *Policy) mayFailOpen(ctx context.Context, err error) bool {
	return p.FailOpen && isUnanswered(ctx, err) && !errors.Is(err, lock.ErrLost)
}

// mayRunWithoutLease reports whether the journal alone decides about a request whose claim failed with err. It does not
// if the deadline of ctx has passed, nor with AtMostOnce, whose holds also protect against instances without a journal.
// It does after ErrLost: even if another request runs, the journal lets only one of the two take effect.
func (p *Policy) mayRunWithoutLease(ctx context.Context, err error) bool {
	return p.Journal != nil && !p.AtMostOnce && isUnanswered(ctx, err)
}
