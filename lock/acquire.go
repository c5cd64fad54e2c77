package lock

import (
	"context"
	"fmt"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// TryAcquire takes key if it is free, in one round trip. ok is false if somebody holds it; that is not an error. It returns
// [ErrSettled] when the key holds a value, and otherwise the errors of [Locker.Claim].
//
// With a ctx of [NewContext] for a lease on this key it sends nothing, and joins that lease.
func (l *Locker) TryAcquire(ctx context.Context, key string) (lease *Lease, ok bool, err error) {
	if err := l.core.ready(ctx, "acquire"); err != nil {
		return nil, false, err
	}
	k := l.core.namespace.Key(key)
	if lease := l.core.join(ctx, k); lease != nil {
		return lease, true, nil
	}
	f, err := l.claim(ctx, k, store.ClaimOptions{})
	switch {
	case err != nil:
		return nil, false, err
	case f.claim.State == Settled:
		return nil, false, ErrSettled
	}
	return f.claim.Lease, f.claim.State == Granted, nil
}

// Acquire takes key, and waits while somebody else holds it. A message wakes it when the holder lets go; it also looks by
// itself, as [WithRetry] says, in case the message was missed. All waiters of a key on one Locker share one subscription
// and one look, and are served in their order.
//
// The error is [ErrHeld] when the looks are spent, or when ctx is done and the key was held at the last look (then it wraps
// the cause of ctx's end as well). An abandoned key counts as held, and may stay so for as long as its holder asked for:
// give ctx an end. Any other error is one of [Locker.TryAcquire], at once.
//
// With a ctx of [NewContext] for a lease on this key it sends nothing, and joins that lease.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	if err := l.core.ready(ctx, "acquire"); err != nil {
		return nil, err
	}
	k := l.core.namespace.Key(key)
	if lease := l.core.join(ctx, k); lease != nil {
		return lease, nil
	}
	claim, err := l.waiters.wait(ctx, k, true)
	switch {
	case err != nil:
		return nil, err
	case claim.State == Settled:
		return nil, ErrSettled
	}
	return claim.Lease, nil
}

// Wait waits until nobody works under key any more: until it is [Settled], [Free] or [Abandoned]. It never takes the key.
// It wakes and looks as [Locker.Acquire] does, but a look that fails does not end it: the next one may succeed.
//
// The error is [ErrHeld] when the looks are spent, or when ctx is done and the key was held at the last look that succeeded
// (then it wraps the cause of ctx's end as well). If the last look failed the error is a [WaitError], which has that error
// too. [ErrClosed] and [ErrForeign] end the wait at once.
func (l *Locker) Wait(ctx context.Context, key string) (Claim, error) {
	if err := l.core.ready(ctx, "wait"); err != nil {
		return Claim{}, err
	}
	k := l.core.namespace.Key(key)
	claim, err := l.waiters.wait(ctx, k, false)
	if err != nil {
		return Claim{}, err
	}
	claim.Key = k.Text
	return claim, nil
}

// heldUntil is the error of a wait that ends with its context.
func heldUntil(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrHeld, context.Cause(ctx))
}
