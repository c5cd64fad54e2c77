package lock

// The plain lock. TryAcquire claims a key once; Acquire and Wait become waiters (waiters.go). None of them holds a
// mutex while it sends or waits.

import (
	"context"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// TryAcquire takes key if it is free, in one round trip. ok is false, without an error, if another caller holds it. The
// error is [ErrSettled] if the key holds a value, and otherwise one of [Locker.Claim].
//
// If ctx comes from [NewContext] with a lease on this key, TryAcquire sends nothing and joins that lease. If it comes
// from [NewOwnerContext], operators see the owner.
func (l *Locker) TryAcquire(ctx context.Context, key string) (lease *Lease, ok bool, err error) {
	lease, err = l.acquire(ctx, key, func(k store.Key, owner string) (Claim, error) {
		return l.granter.claim(ctx, k, store.ClaimOptions{IsLock: true, Owner: owner})
	})
	return lease, lease != nil, err
}

// Acquire takes key, and waits while another caller holds it. A message wakes it when the holder releases or settles
// the key. It also polls the key, at the pauses of [WithRetry], because a message may be missed. All waiters of a key
// on one Locker share one subscription and one poll, and get the key in the order in which they came.
//
// The error is [ErrHeld] when the budget of WithRetry is spent, and when ctx is done and the last poll found the key
// held or abandoned (then it also wraps the cause of ctx). A key may stay abandoned for as long as its holder has asked
// for (the hold of [Locker.Claim]), so give ctx an end. Acquire returns any other error of [Locker.TryAcquire] at once.
//
// [NewContext] and [NewOwnerContext] are as for TryAcquire.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	return l.acquire(ctx, key, func(k store.Key, owner string) (Claim, error) {
		return l.waiters.wait(ctx, k, waiter{takes: true, owner: owner})
	})
}

// acquire joins the lease that ctx carries for key. If there is none, it returns the lease of the claim that take returns,
// and nil if another caller has the key.
func (l *Locker) acquire(
	ctx context.Context, key string, take func(k store.Key, owner string) (Claim, error),
) (*Lease, error) {
	if err := l.ready(ctx, "acquire"); err != nil {
		return nil, err
	}
	k := l.namespace.Key(key)
	if joined := join(ctx, l.store, k); joined != nil {
		return l.held.add(joined)
	}
	owner, err := ownerOf(ctx)
	if err != nil {
		return nil, err
	}
	claim, err := take(k, owner)
	switch {
	case err != nil:
		return nil, err
	case claim.State == Settled:
		return nil, ErrSettled
	case claim.Lease == nil:
		return nil, nil
	}
	return l.held.add(claim.Lease)
}

// Wait waits until key is [Settled], [Free] or [Abandoned]. It never takes the key. A message wakes it, and it polls,
// as [Locker.Acquire] does, but a poll that fails does not end it: the next one may succeed.
//
// The error is [ErrHeld] when the budget of [WithRetry] is spent, and when ctx is done and the last poll that succeeded
// found the key held (then it also wraps the cause of ctx). If the last poll failed, the error is a [WaitError], which
// has the error of the poll too. [ErrClosed] and [ErrForeign] end the wait at once.
func (l *Locker) Wait(ctx context.Context, key string) (Claim, error) {
	if err := l.ready(ctx, "wait"); err != nil {
		return Claim{}, err
	}
	return l.waiters.wait(ctx, l.namespace.Key(key), waiter{})
}
