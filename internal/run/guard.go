package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Policy is what a door's user has chosen.
type Policy struct {
	Retention   time.Duration   // how long a record is kept
	Wait        time.Duration   // how long a duplicate waits for the run; 0: not at all
	MaxWaiters  int             // how many wait at the same time, if any do
	MaxDuration time.Duration   // of a run
	AtMostOnce  bool            // a run whose outcome is unknown is not repeated, nor one that failed
	FailOpen    bool            // an operation runs unprotected while Redis does not answer
	Pauses      bool            // after a failure of Redis, nobody asks it for a second; always so with a Journal that may do without
	Journal     journal.Journal // nil: none
	Codec       record.Codec
}

// Guard begins runs. It is safe for concurrent use.
type Guard struct {
	locker *lock.Locker
	Policy

	waiting        atomic.Int64 // callers in Wait
	redis          breaker      // keeps callers from waiting for Redis during an outage; with a journal
	pendingRecords atomic.Int64 // bytes of records that wait for the journal
	undoing        atomic.Int64 // runs in undoBegin
}

// New returns a Guard. It panics, in the words of the door's package, if its user has chosen what contradicts itself, or a
// journal with another namespace than the locker.
func New(door string, locker *lock.Locker, p Policy) *Guard {
	switch {
	case p.AtMostOnce && p.FailOpen:
		panic(door + ".WithAtMostOnce: cannot be kept with WithFailOpen")
	case p.Journal != nil && p.FailOpen:
		panic(door + ".WithJournal: cannot be kept with WithFailOpen")
	case p.AtMostOnce && p.Retention > lock.MaxHold:
		panic(door + ".WithAtMostOnce: cannot hold a key for a WithRetention of more than ten years")
	case p.Codec.PlaintextReads && len(p.Codec.Keys) == 0:
		panic(door + ".WithPlaintextReads: means nothing without WithEncryption")
	}
	if p.Journal != nil {
		locks, _, _ := strings.Cut(locker.StorageKey(""), ":{")
		if notes := p.Journal.Namespace(); notes != locks {
			panic(fmt.Sprintf("%s.WithJournal: the journal has the namespace %q, and the locker %q", door, notes, locks))
		}
	}
	return &Guard{locker: locker, Policy: p}
}

// Request is who asks for what.
type Request struct {
	Key          string               // as the door has derived it
	Fingerprints []record.Fingerprint // of the input, one by each rule; the first one is stored. At least one, see record.Kind
	Traceparent  func() record.Trace  // of the operation, for its record; nil: none
	AnswerBy     time.Time            // when a caller that waits must have its answer; zero: no limit but Policy.Wait
	TooOld       bool                 // nothing may run: the key is looked up and never claimed

	// Begin, Wait, Run.Start and Run.CutOff set these:
	StorageKey string // the key as it stands in Redis; may be set before, too
	Phases     Phases
}

// Begin claims the key and, if it is free, begins a run. It sends nothing if ctx has passed its deadline, because the
// run would end at once. Otherwise the end of ctx does not matter.
//
// A caller that gets InFlight may call Wait, once it has let go of its input. The request must not change until the run
// is concluded.
func (g *Guard) Begin(ctx context.Context, req *Request) Result {
	detached := context.WithoutCancel(ctx)
	claim, err := g.claim(ctx, detached, req)
	req.StorageKey = g.storageKey(req, claim.Key)
	switch {
	case err != nil && !req.TooOld && g.mayFailOpen(ctx, err):
		return refuse(Unprotected, err)
	case err != nil && !req.TooOld && g.mayRunWithoutLease(ctx, err):
		return g.begin(ctx, detached, req, nil, err)
	case errors.Is(err, lock.ErrSettled), err != nil && g.mayRunWithoutLease(ctx, err):
		return g.lookInJournal(ctx, req, unclaimed(err))
	case err != nil:
		return unclaimed(err)
	case claim.State == lock.Granted:
		return g.begin(ctx, detached, req, claim.Lease, nil)
	case claim.State == lock.Abandoned, claim.State == lock.Free:
		return g.lookInJournal(ctx, req, g.byClaim(req, &claim))
	}
	return g.byClaim(req, &claim)
}

// storageKey returns the key as it stands in Redis. claimed is what the claim has returned, if that is known.
func (g *Guard) storageKey(req *Request, claimed string) string {
	switch {
	case req.StorageKey != "":
		return req.StorageKey
	case claimed != "":
		return claimed
	}
	return g.locker.StorageKey(req.Key)
}

// claim claims the key, or looks at one that is too old, unless that is known to be in vain. detached has the values of
// ctx, and never ends.
func (g *Guard) claim(ctx, detached context.Context, req *Request) (claim lock.Claim, err error) {
	if err = deadlineError(ctx); err != nil {
		return claim, err
	}
	pauses := g.Pauses || g.mayRunWithoutLease(ctx, errRedisPaused)
	if pauses && g.redis.open() {
		return claim, errRedisPaused
	}
	start := time.Now()
	if req.TooOld {
		claim, err = g.locker.Look(detached, req.Key)
	} else {
		claim, err = g.sendClaim(detached, req)
	}
	req.Phases.Claim = PhaseSince(start)
	if pauses {
		g.tripAfter(ctx, err)
	}
	return claim, err
}

// sendClaim sends a claim, with the request's fingerprint in its note. With AtMostOnce the claim has a hold.
func (g *Guard) sendClaim(ctx context.Context, req *Request) (lock.Claim, error) {
	var room [record.NoteLen]byte
	hold := time.Duration(0)
	if g.AtMostOnce {
		hold = g.Retention
	}
	return g.locker.Claim(ctx, req.Key, g.note(room[:0], req), hold)
}

// note returns the note of the request's claim, in room if it fits. Only an encrypted one needs the storage key.
func (g *Guard) note(room []byte, req *Request) []byte {
	if len(g.Codec.Keys) > 0 {
		req.StorageKey = g.storageKey(req, "")
	}
	return g.Codec.EncodeNote(room, req.StorageKey, record.Note{Fingerprint: req.Fingerprints[0], Journaled: g.Journal != nil})
}

// unclaimed returns the result of a claim that failed with err.
func unclaimed(err error) Result {
	switch {
	case errors.Is(err, lock.ErrForeign):
		return refuse(Unreadable, err)
	case errors.Is(err, lock.ErrSettled):
		return refuse(Unconfirmed, err)
	}
	return refuse(Unavailable, err)
}

// begin begins a run whose key is claimed. lease is nil if Redis did not answer, with claimErr: then the journal alone
// protects the run.
func (g *Guard) begin(ctx, detached context.Context, req *Request, lease *lock.Lease, claimErr error) Result {
	r := &Run{guard: g, req: req, caller: ctx, detached: detached, claimErr: claimErr}
	r.control.retention = g.Retention
	if g.Journal == nil {
		r.protection = leased{held{lease}}
	} else {
		r.protection = newJournaled(r, lease)
	}
	if refusal := r.protection.begin(r); refusal != nil {
		refusal.Err = errors.Join(refusal.Err, claimErr)
		return *refusal
	}
	return Result{Kind: Begun, Run: r}
}

// protection is what decides about the key of a run.
type protection interface {
	// begin reports whether the run may begin. If not, it gives the key up, and returns what the caller gets.
	begin(r *Run) (instead *Result)
	// limits returns the lease whose loss ends the operation, or nil, and when the operation must end.
	limits(r *Run) (*lock.Lease, time.Time)
	// cutOff is called when the operation has ended.
	cutOff()
	// abandonAt stops the renewals of the lease from t on. The zero time means never.
	abandonAt(t time.Time)
	// abandon lets the lease run out.
	abandon()
	// conclude does with the key what follows from end, and returns what the caller gets.
	conclude(r *Run, end Ending) Result
}
