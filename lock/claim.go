package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// State is what a Claim found.
type State int

const (
	Free      State = iota + 1 // nobody has it: only Wait says so, which does not take it
	Granted                    // the key was absent and is ours now: Claim.Lease
	Held                       // somebody holds it: Claim.Note is the holder's
	Abandoned                  // its holder has asked to Hold it, and does not renew it any more: Claim.Note
	Settled                    // its holder left a value: Claim.Value
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Free:
		return "free"
	case Granted:
		return "granted"
	case Held:
		return "held"
	case Abandoned:
		return "abandoned"
	case Settled:
		return "settled"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Claim is the answer of [Locker.Claim] and [Locker.Wait].
type Claim struct {
	State State
	Key   string // as it stands in Redis, see Locker.StorageKey
	Lease *Lease // when Granted
	Note  []byte // when Held or Abandoned: what the holder said when it claimed
	Value []byte // when Settled: what the last holder left

	// ClaimedAt is when the holder claimed the key, when Held or Abandoned. SettledAt is when the last holder called
	// Settle, when Settled. Both are read from the wall clock of the process that wrote them, to the millisecond: use them
	// to inform, not to decide.
	ClaimedAt, SettledAt time.Time
}

// Claim takes key if it is free, or returns what is there, in one round trip; in two if it meets a claim under
// [Lease.Hold]. If the second one fails, such a claim is Held: nothing tells whether it is still renewed. A key that somebody holds is an answer, not an error. The note is stored with the claim, for others who
// claim while it stands. It is stored as given: keep secrets out of it.
//
// After an error nothing is known: Redis did not answer in time, or answered with an error ([ErrForeign] if the key holds
// what is not ours). A claim that arrives nevertheless is released as soon as that is seen, or else ends by itself within
// the lease's length; no caller believes to own it. With [WithReplicas] a value that is met is confirmed first, which
// takes a second round trip: [ErrSettled] then means that there is a value, and the error beside it why it was not
// confirmed.
//
// The lease's context has the values of ctx but not its cancellation: a limit on waiting must not end the lease.
func (l *Locker) Claim(ctx context.Context, key string, note []byte) (Claim, error) {
	if err := l.core.ready(ctx, "claim"); err != nil {
		return Claim{}, err
	}
	k := l.core.namespace.Key(key)
	f, err := l.claim(ctx, k, store.ClaimOptions{Note: note})
	if err != nil {
		return Claim{}, err
	}
	f.claim.Key = k.Text
	return f.claim, nil
}

// found is what a look at a key has found.
type found struct {
	claim Claim
	left  time.Duration // how long it stands as it does without a renewal; 0 if the look has not told
}

// claim takes key if it is free, or returns what is there.
func (l *Locker) claim(ctx context.Context, key store.Key, q store.ClaimOptions) (found, error) {
	e, err := l.store.Claim(ctx, key, q)
	if err != nil {
		return found{}, err
	}
	f := foundIn(e)
	if e.State == store.Granted {
		f.claim.Lease, err = l.grant(ctx, key, e)
	}
	if err != nil {
		return found{}, err
	}
	return f, nil
}

// look returns what key holds and never takes it.
func (l *Locker) look(ctx context.Context, key store.Key) (found, error) {
	e, err := l.store.Look(ctx, key)
	return foundIn(e), err
}

func foundIn(e store.Entry) found {
	f := found{claim: Claim{State: State(e.State), Note: e.Note, Value: e.Value}, left: e.Left}
	switch f.claim.State {
	case Held, Abandoned:
		f.claim.ClaimedAt = e.At
	case Settled:
		f.claim.SettledAt = e.At
	}
	return f
}

// grant returns the lease on a key that was taken, unless the answer took longer than the lease lasts.
func (l *Locker) grant(ctx context.Context, key store.Key, e store.Entry) (*Lease, error) {
	if !time.Now().Before(e.Start.Add(lease.Validity(l.core.options.ttl))) {
		l.undo(ctx, key, e.Token)
		return nil, fmt.Errorf("lock: claim: granted too late: %w", context.DeadlineExceeded)
	}
	return newLease(ctx, l.core, l.backend, lease.ID{Key: key, Token: e.Token}, e.Fence, e.Start), nil
}

// undo releases a claim in the background.
func (l *Locker) undo(ctx context.Context, key store.Key, token uuid.UUID) {
	l.core.group.Go(func() { l.store.Release(background.WithoutEnd(ctx), key, token) })
}
