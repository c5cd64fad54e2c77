package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// State is what a Claim found.
type State int

const (
	Granted   State = iota + 1 // the key was absent and is ours now: Claim.Lease
	Held                       // somebody holds it: Claim.Note is the holder's
	Abandoned                  // its holder has asked to Hold it, and does not renew it any more: Claim.Note
	Settled                    // its holder left a value: Claim.Value
)

func (s State) String() string {
	switch s {
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

// Claim is the answer of [Locker.Claim].
type Claim struct {
	State State
	Lease *Lease // when Granted
	Note  []byte // when Held or Abandoned: what the holder said when it claimed
	Value []byte // when Settled: what the last holder left
}

// Claim takes key if it is free, or tells what is there, in one round trip, and a second one if it meets a claim under
// [Lease.Hold]. That somebody holds it is an answer, not an error. The note is stored with the claim, for others who
// claim while it stands; it is kept as given, so let it hold no secret.
//
// An error means that nothing is known: Redis did not answer in time, or answered with an error ([ErrForeign] if the
// key holds what is not ours). A claim that arrives nevertheless is released as soon as that is seen, and else ends by
// itself within the lease's length: nobody thinks to own it.
//
// The lease's context has the values of ctx but not its cancellation: a limit on waiting must not end the lease.
func (l *Locker) Claim(ctx context.Context, key string, note []byte) (Claim, error) {
	if l.work.closed() {
		return Claim{}, ErrClosed
	}
	if ctx.Err() != nil {
		return Claim{}, fmt.Errorf("lock: claim: %w", context.Cause(ctx))
	}
	token, err := uuid.NewRandom()
	if err != nil {
		return Claim{}, fmt.Errorf("lock: claim: %w", err)
	}
	storageKey := l.StorageKey(key)
	ours := head(claimMagic, token) + encodeHold(0) + string(note)
	for range maxLooks {
		claim, changed, err := l.claim(ctx, storageKey, token, ours)
		if !changed {
			return claim, err
		}
	}
	return Claim{}, errors.New("lock: claim: the key's holder has changed again and again")
}

// maxLooks bounds how often Claim asks anew because a claim was gone, or another's, at the second look.
const maxLooks = 5

// claim asks once. If what was there has changed before it could be judged, changed is true.
func (l *Locker) claim(
	ctx context.Context, storageKey string, token uuid.UUID, ours string,
) (claim Claim, changed bool, err error) {
	undo := func(a answer) {
		if a.absent || a.value == ours || a.unsure {
			l.release(context.WithoutCancel(ctx), storageKey, token)
		}
	}
	start := time.Now()
	a := l.ask(ctx, func(ctx context.Context) (string, error) {
		return l.setOrGet(ctx, storageKey, ours)
	}, undo)
	switch {
	case a.err != nil && a.unsure:
		l.work.run(func() { undo(a) })
		return Claim{}, false, a.wrap("claim")
	case isForeign(a.err):
		return Claim{}, false, ErrForeign
	case a.err != nil:
		return Claim{}, false, a.wrap("claim")
	case a.absent, a.value == ours:
		claim, err = l.granted(ctx, storageKey, token, start)
		return claim, false, err
	}
	c, err := parse(a.value)
	switch {
	case err != nil:
		return Claim{}, false, err
	case c.state == Settled:
		return Claim{State: Settled, Value: c.rest}, false, nil
	case c.hold == 0:
		return Claim{State: Held, Note: c.rest}, false, nil
	}
	abandoned, changed, err := l.abandoned(ctx, storageKey, c)
	switch {
	case err != nil || changed:
		return Claim{}, changed, err
	case abandoned:
		return Claim{State: Abandoned, Note: c.rest}, false, nil
	}
	return Claim{State: Held, Note: c.rest}, false, nil
}

// granted returns the lease on a key that was taken, unless the answer took longer than the lease lasts.
func (l *Locker) granted(ctx context.Context, storageKey string, token uuid.UUID, start time.Time) (Claim, error) {
	until := start.Add(validity(l.ttl))
	if !time.Now().Before(until) {
		l.work.run(func() { l.release(context.WithoutCancel(ctx), storageKey, token) })
		return Claim{}, fmt.Errorf("lock: claim: granted too late: %w", context.DeadlineExceeded)
	}
	return Claim{State: Granted, Lease: newLease(ctx, l, storageKey, token, start, until)}, nil
}

// setOrGet puts the claim under an absent key, which is the nil reply, or returns what the key holds.
func (l *Locker) setOrGet(ctx context.Context, storageKey, claim string) (string, error) {
	value, err := l.send(ctx, "set", storageKey, claim, "nx", "get", "px", l.ttl.Milliseconds())
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return value, err
	case redis.HasErrorPrefix(err, "syntax error"):
		return l.eval(ctx, claimScript, storageKey, claim, l.ttl.Milliseconds())
	case redis.IsOOMError(err):
		// A server that is full refuses even a SET that would only look. What is there counts all the same.
		if held, lookErr := l.send(ctx, "get", storageKey); lookErr == nil {
			return held, nil
		}
	}
	return "", err
}
