package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// State is what a key holds.
type State int

// The states of a key. Package lock has the same, in the same order.
const (
	Free      State = iota + 1 // nothing; only Look says so, which does not take it
	Granted                    // a claim that is ours
	Held                       // a claim of another
	Abandoned                  // a claim of another that is held, and not renewed any more
	Settled                    // a value
)

// Entry is what a key holds.
type Entry struct {
	State State
	Note  []byte    // of a claim
	Value []byte    // when Settled
	At    time.Time // when it was claimed, or settled, by its writer's clock
	Fence int64     // of a claim, 0 without a number

	Token uuid.UUID // when Granted
	Start time.Time // when Granted: of the operation, from which the lease counts

	Left time.Duration // how long the entry stands as it does without a renewal; 0 if the look has not told
	hold time.Duration // of a claim
}

// Request says how a key is claimed.
type Request struct {
	Note    []byte
	Waits   bool // a claim that is met is asked to publish its end
	Awaited bool // somebody already waits for the end of ours
}

// Claim takes key if it is free, or returns what is there. A claim that comes to stand though Claim failed is released.
func (s *Store) Claim(ctx context.Context, key Key, q Request) (Entry, error) {
	o := s.newOp(ctx, key)
	o.MayInline = !q.Waits
	o.Start, o.token = time.Now(), NewToken()
	o.claim = appendClaim(o.room[:0], o.token, q.Awaited, o.Start, q.Note)
	if s.config.Fencing || q.Waits {
		return o.claimByScript(q.Waits)
	}
	e, err := o.attempt(o.setOrGet)
	if e.State == Held && e.hold > 0 && e.Left == 0 { // is it still renewed?
		again := s.newOp(ctx, key)
		again.claim, again.token, again.Start = o.claim, o.token, o.Start // its SET may have arrived late
		if more, err := again.claimByScript(false); err == nil || errors.Is(err, ErrForeign) || errors.Is(err, ErrSettled) {
			return more, err
		}
		// Somebody has the key, whether or not the claim is still renewed. That is no failure: a caller that takes it for one
		// may run what another is running.
	}
	return e, err
}

func (o *op) claimByScript(waits bool) (Entry, error) {
	return o.attempt(func() (pipeline.Reply, error) { return o.setOrTell(waits) })
}

// attempt claims the key by what send sends.
func (o *op) attempt(send func() (pipeline.Reply, error)) (Entry, error) {
	o.Late = (*undo)(o)
	r := o.Do(send)
	switch {
	case r.Err != nil && r.Unsure:
		o.store.group.Go(func() { (*undo)(o).Late(r) })
		return Entry{}, wrap("claim", r.Err)
	case r.Err != nil:
		return Entry{}, claimError(r)
	case r.Absent, o.isOurs(r.Text):
		return o.granted(r.Reply)
	}
	return o.met(r.Reply)
}

// isOurs reports whether stored is the claim that o writes, whatever it was made to say since.
func (o *op) isOurs(stored []byte) bool { return hasHead(stored, claimMagic, o.token) }

// undo is an operation whose claim nobody wants any more.
type undo op

// Late releases the claim if it stands, or may.
func (u *undo) Late(r pipeline.Result) {
	if o := (*op)(u); r.Unsure || r.Err == nil && (r.Absent || o.isOurs(r.Text)) {
		o.store.Release(background.WithoutEnd(o.Context), o.key, o.token)
	}
}

func claimError(r pipeline.Result) error {
	if r.Foreign {
		return ErrForeign
	}
	return wrap("claim", r.Err)
}

// granted returns the claim that o has written.
func (o *op) granted(r pipeline.Reply) (e Entry, err error) {
	switch {
	case !r.Absent:
		e, err = parse(r.Text)
	case r.Pair:
		e.Fence, err = parseFence(r.Fence)
	}
	if err != nil {
		o.store.group.Go(func() { o.store.Release(background.WithoutEnd(o.Context), o.key, o.token) })
		return Entry{}, wrap("claim", err)
	}
	return Entry{State: Granted, Fence: e.Fence, Token: o.token, Start: o.Start, Left: o.store.config.TTL}, nil
}

// met returns another's claim or value. A value is not handed out before enough replicas have it.
func (o *op) met(r pipeline.Reply) (Entry, error) {
	e, err := met(r)
	if err != nil || e.State != Settled || !o.store.config.Replicas {
		return e, err
	}
	if err := o.confirm(r.Text[:headLen]); err != nil {
		return Entry{}, fmt.Errorf("lock: claim: %w: %w", ErrSettled, err)
	}
	return e, nil
}

// met returns another's claim or value.
func met(r pipeline.Reply) (Entry, error) {
	e, err := parse(r.Text)
	if err != nil || e.State == Settled || !r.Pair {
		return e, err
	}
	rest := time.Duration(r.Left) * time.Millisecond
	e.Left = rest - e.hold
	if e.hold > 0 && e.Left <= 0 {
		e.State, e.Left = Abandoned, rest
	}
	return e, nil
}

// Look returns what the key holds and never takes it. A claim that it meets is asked to publish its end.
func (s *Store) Look(ctx context.Context, key Key) (Entry, error) {
	o := s.newOp(ctx, key)
	r := o.Do(func() (pipeline.Reply, error) { return o.tell(true) })
	switch {
	case r.Err != nil:
		return Entry{}, claimError(r)
	case r.Absent:
		return Entry{State: Free}, nil
	}
	return o.met(r.Reply)
}

// setOrGet puts the claim under an absent key, or returns what the key holds, by one SET.
func (o *op) setOrGet() (pipeline.Reply, error) {
	r, acked, err := o.SendDurable("set", o.key.arg, &o.claim, "nx", "get", "px", o.store.ttl)
	switch {
	case err == nil:
		return r, o.acknowledged(r, acked)
	case redis.HasErrorPrefix(err, "syntax error"): // older than 7.0
		return o.setOrTell(false)
	case rediserr.RefusesWrites(err):
		// Even a SET that would only look is refused. What is there counts all the same.
		if r, lookErr := o.tell(false); lookErr == nil && !r.Absent {
			return r, o.acknowledged(r, nil)
		}
	}
	return pipeline.Reply{}, err
}

// setOrTell does the same by a script, which tells more.
func (o *op) setOrTell(waits bool) (pipeline.Reply, error) {
	args := []any{1, o.key.arg}
	if o.store.config.Fencing {
		args = []any{2, o.key.arg, o.store.config.Namespace.fence(o.key)}
	}
	toFence, behindFence := arg(o.claim[:headLen+1]), arg(o.claim[holdPos:])
	r, acked, err := o.EvalDurable(claimScript, append(args, toFence, behindFence, o.store.ttl, awaiting(waits))...)
	if err != nil {
		return r, err
	}
	return r, o.acknowledged(r, acked)
}

// tell returns by the same script what the key holds, and takes nothing.
func (o *op) tell(waits bool) (pipeline.Reply, error) {
	return o.Eval(claimScript, 1, o.key.arg, "", "", 0, awaiting(waits))
}

// awaiting is what the script compares a claim with before it asks its holder to publish.
func awaiting(waits bool) string {
	if waits {
		return claimMagic
	}
	return ""
}

// acknowledged returns nil if a claim that was granted is on the replicas.
func (o *op) acknowledged(r pipeline.Reply, acked error) error {
	switch {
	case r.Absent:
		return acked
	case !o.store.config.Replicas || !o.isOurs(r.Text):
		return nil
	}
	// An earlier try has written it, whose reply was lost. WAIT must stand behind a write on its own connection.
	r, acked, err := o.extend(o.store.config.TTL)
	switch {
	case err != nil:
		return err
	case holder(r, o.token) != Ours:
		return ErrLost
	}
	return acked
}

// errChanged says that a value that was met was not there any more when it was to be confirmed.
var errChanged = fmt.Errorf("%w: the value has changed meanwhile", pipeline.ErrNotReplicated)

// confirm returns nil if the value with that head is on the replicas.
func (o *op) confirm(head []byte) error {
	again := o.store.newOp(o.Context, o.key)
	again.Start = o.Start
	return again.Do(func() (pipeline.Reply, error) {
		r, acked, err := again.EvalDurable(confirmScript, 1, again.key.arg, arg(head))
		if err == nil && !bytes.Equal(r.Text, head) {
			err = errChanged
		}
		if err == nil {
			err = acked
		}
		return r, err
	}).Err
}

// Attempt is the result of TryClaim.
type Attempt struct {
	Entry        // Granted, Held or Settled; 0 with an error
	Err    error // ErrForeign, or why there was no answer
	Stands bool  // the claim stands, or may
}

// TryClaim puts the claim of a token under key if there is nothing, once, and undoes nothing. A result that comes after it
// has returned goes to late.
func (s *Store) TryClaim(ctx context.Context, key Key, token uuid.UUID, start time.Time, late func(Attempt)) Attempt {
	o := s.newOp(ctx, key)
	o.token, o.late = token, late
	o.claim = appendClaim(o.room[:0], token, false, start, nil)
	o.Late = (*lateAttempt)(o)
	return o.attempted(o.Do(o.setOrGet))
}

// lateAttempt is a TryClaim that has returned.
type lateAttempt op

// Late tells the caller of TryClaim.
func (l *lateAttempt) Late(r pipeline.Result) {
	o := (*op)(l)
	o.late(o.attempted(r))
}

func (o *op) attempted(r pipeline.Result) Attempt {
	a := Attempt{Err: r.Err, Stands: r.Unsure}
	switch {
	case r.Foreign:
		a.Err = ErrForeign
	case r.Err != nil:
	case r.Absent, o.isOurs(r.Text):
		a.State, a.Stands = Granted, true
	default:
		a.Entry, a.Err = met(r.Reply)
	}
	return a
}
