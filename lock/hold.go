package lock

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// MaxHold is the longest time that [Lease.Hold] takes, ten years.
const MaxHold = 10 * 365 * 24 * time.Hour

// Hold keeps the claim for d after the lease has ended, d being at least a millisecond and at most ten years. It is for
// an operation that must not happen twice even if this process dies in the middle of it: a claim that is held and no
// longer renewed reads as [Abandoned] and not as free, until d is over. Release, Settle and Forget end it earlier; the
// owner may settle late, as long as its claim stands.
//
// The key then expires after d and the length of the lease, which every renewal restores. No more than d left means
// that the lease has run out: Redis's clock alone judges that. d is written into the claim, so that every Locker judges
// it alike.
//
// [ErrLost] means that the lease is over. After any other error nobody knows whether the hold is there, and the lease
// is not renewed any more: release it. A Hold that arrives later than its caller would have waited for it has no
// effect, so that a claim which nobody works under is not held.
func (l *Lease) Hold(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond || d > MaxHold {
		return fmt.Errorf("lock: hold: %v is not between a millisecond and ten years", d)
	}
	d = d.Truncate(time.Millisecond)
	ttl, least, err := l.beginHold(d)
	if err != nil {
		return err
	}
	start := time.Now()
	a := l.locker.ask(ctx, func(ctx context.Context) (string, error) {
		return l.locker.eval(ctx, holdScript, l.key, head(claimMagic, l.token), encodeHold(d), (d + ttl).Milliseconds(),
			least.Milliseconds())
	}, nil)

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.standing(a, "hold"); err != nil {
		return err
	}
	l.hold = d
	l.move(start, ttl)
	l.renewing = l.locker.renew
	l.timer.Reset(time.Until(l.wake(start)))
	return nil
}

// beginHold returns how long the lease part is to last, which is never less than is left of it, and what must be left
// of the claim when the hold arrives. There is no renewal meanwhile: it would make a late one look early.
func (l *Lease) beginHold(d time.Duration) (ttl, least time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return 0, 0, ErrLost
	}
	left := time.Until(l.expiry)
	l.mayHold, l.renewing = d, false
	l.timer.Reset(time.Until(l.until))
	return max(l.locker.ttl, left), max(left-l.locker.opTimeout, 0), nil
}

// abandoned tells whether a claim that is held is no longer renewed. If it is another one by now, changed is true and
// nothing is known.
func (l *Locker) abandoned(ctx context.Context, storageKey string, c content) (abandoned, changed bool, err error) {
	a := l.ask(ctx, func(ctx context.Context) (string, error) {
		return l.eval(ctx, leftScript, storageKey, c.head)
	}, nil)
	if a.err != nil || a.absent {
		return false, a.absent, a.wrap("claim")
	}
	left, err := strconv.ParseInt(a.value, 10, 64)
	if err != nil {
		return false, false, fmt.Errorf("lock: claim: %w", err)
	}
	return time.Duration(left)*time.Millisecond <= c.hold, false, nil
}
