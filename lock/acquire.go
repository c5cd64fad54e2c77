package lock

import (
	"context"
	"errors"
	"fmt"
)

// TryAcquire takes key if it is free, in one round trip. That somebody holds it is ok == false, not an error. It
// returns [ErrSettled] when the key holds a value, and otherwise the errors of [Locker.Claim].
func (l *Locker) TryAcquire(ctx context.Context, key string) (lease *Lease, ok bool, err error) {
	claim, err := l.Claim(ctx, key, nil)
	switch {
	case err != nil:
		return nil, false, err
	case claim.State == Settled:
		return nil, false, ErrSettled
	}
	return claim.Lease, claim.State == Granted, nil
}

// Acquire takes key, and waits while somebody else holds it: it tries again as [WithRetry] says. The error is [ErrHeld]
// when the tries are spent, or when ctx is done and the key was held at the last look (then it is the cause of ctx's
// end as well). Any other error is one of [Locker.TryAcquire], at once.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	for n := 1; ; n++ {
		lease, ok, err := l.TryAcquire(ctx, key)
		switch {
		case err != nil && n > 1 && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)): // held at the last look
			return nil, fmt.Errorf("%w: %w", ErrHeld, context.Cause(ctx))
		case err != nil:
			return nil, err
		case ok:
			return lease, nil
		case n == l.retry.Attempts:
			return nil, ErrHeld
		}
		if err := pause(ctx, jitter(l.retry.pause(n))); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrHeld, err)
		}
	}
}
