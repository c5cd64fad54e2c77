package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// A claim on one master of a Quorum. The Quorum decides by the results of all masters what to release.

// Attempt is the result of TryClaim.
type Attempt struct {
	Entry          // Granted, Held or Settled; its State is 0 with an error
	Err      error // ErrForeign, or why the master did not answer
	MayExist bool  // the master has the claim, or may have it
}

// TryClaim writes the claim of a token under key if the key is absent. It releases nothing. start is when the Quorum's
// operation began. If TryClaim returns before the result arrives, late gets the result, in a new goroutine.
func (s *Store) TryClaim(ctx context.Context, key Key, token uuid.UUID, start time.Time, late func(Attempt)) Attempt {
	o := s.newOp(ctx, key)
	o.token, o.onLateAttempt = token, late
	o.claim = appendClaim(o.room[:0], token, false, start, nil)
	o.Late = (*lateAttempt)(o)
	return o.attempt(o.Do(o.sendSet))
}

// lateAttempt is the op of a TryClaim that has returned.
type lateAttempt op

// HandleLate gives the result to the caller of TryClaim.
func (l *lateAttempt) HandleLate(r pipeline.Result) {
	o := (*op)(l)
	o.onLateAttempt(o.attempt(r))
}

// attempt returns r as an Attempt.
func (o *op) attempt(r pipeline.Result) Attempt {
	a := Attempt{Err: r.Err, MayExist: r.Unsure}
	switch {
	case r.Foreign:
		a.Err = ErrForeign
	case r.Err != nil:
	case o.isGrantedBy(r.Reply):
		a.State, a.MayExist = Granted, true
	default:
		a.Entry, a.Err = classify(r.Reply)
	}
	return a
}
