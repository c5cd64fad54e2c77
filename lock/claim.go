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
	Granted State = iota + 1 // the key was absent and is ours now: Claim.Lease
	Held                     // somebody holds it: Claim.Note is the holder's
	Settled                  // its holder left a value: Claim.Value
)

func (s State) String() string {
	switch s {
	case Granted:
		return "granted"
	case Held:
		return "held"
	case Settled:
		return "settled"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Claim is the answer of [Locker.Claim].
type Claim struct {
	State State
	Lease *Lease // when Granted
	Note  []byte // when Held: what the holder said when it claimed
	Value []byte // when Settled: what the last holder left
}

// Claim takes key if it is free, or tells what is there, in one round trip. That somebody holds it is an answer, not an
// error. The note is stored with the claim, for others who claim while it stands; it is kept as given, so let it hold no secret.
//
// An error means that nothing is known: Redis did not answer in time, or answered with an error ([ErrForeign] if the key
// holds what is not ours). A claim that arrives nevertheless is released as soon as that is seen, and else ends
// by itself within the lease's length: nobody thinks to own it.
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
	ours := head(claimMagic, token) + string(note)
	start := time.Now()

	undo := func(a answer) {
		if a.absent || a.value == ours || a.unsure {
			l.release(context.WithoutCancel(ctx), storageKey, token)
		}
	}
	a := l.ask(ctx, func(ctx context.Context) (string, error) {
		return l.setOrGet(ctx, storageKey, ours)
	}, undo)

	if a.err != nil {
		if a.unsure {
			l.work.run(func() { undo(a) })
		}
		if isForeign(a.err) {
			return Claim{}, ErrForeign
		}
		return Claim{}, a.wrap("claim")
	}
	if a.absent || a.value == ours {
		return l.granted(ctx, storageKey, token, start)
	}
	state, rest, err := parse(a.value)
	if err != nil {
		return Claim{}, err
	}
	if state == Held {
		return Claim{State: Held, Note: rest}, nil
	}
	return Claim{State: Settled, Value: rest}, nil
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
