package lock

import (
	"context"
	"fmt"
	"time"
)

// Settle leaves value behind under the key for ttl (in whole milliseconds, from now) and ends the lease, in one step.
// From then on a claim of the key reads it.
//
// It writes where our claim stands, and also where there is nothing: a server that restarted empty must not turn what
// has happened into what happens again. Over somebody else's claim or value it writes nothing and returns [ErrLost], as
// it does after Release and after another Settle.
//
// After any other error nobody knows whether the value arrived. The claim is then kept alive and Settle is
// tried again in the background, for as long as a new lease would last and the Locker is not closed. It may be called
// again with the same value.
//
// Settle works although ctx is cancelled: it takes only the values of it, and no longer than the time for one
// operation. The value must not be changed afterwards: it may still be on its way.
func (l *Lease) Settle(ctx context.Context, value []byte, ttl time.Duration) error {
	if ttl < time.Millisecond {
		return fmt.Errorf("lock: settle: %v is below a millisecond", ttl)
	}
	if l.isOver() {
		return ErrLost
	}
	ctx = context.WithoutCancel(ctx)
	done, err := l.settle(ctx, value, ttl)
	if !done {
		l.insist(ctx, value, ttl)
	}
	return err
}

// settle tries once. It is not done as long as another try may succeed.
func (l *Lease) settle(ctx context.Context, value []byte, ttl time.Duration) (done bool, err error) {
	a := l.locker.settle(ctx, l.key, l.token, value, ttl)

	l.mu.Lock()
	defer l.mu.Unlock()
	if a.err != nil && !isForeign(a.err) {
		return false, a.wrap("settle")
	}
	if a.err != nil || a.standing(l.token) == others {
		l.finish(ErrLost)
		l.decide(ErrLost)
		return true, ErrLost
	}
	l.finish(context.Canceled)
	l.decide(nil)
	return true, nil
}

// insist tries to settle again in the background, for one more lease. The renewals go on meanwhile.
func (l *Lease) insist(ctx context.Context, value []byte, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.insisting || l.over || l.locker.work.closed() {
		return
	}
	l.insisting = true
	if !l.renewing && l.locker.renew && l.ctx.Err() == nil { // abandoned, and wanted after all
		l.renewing = true
		l.timer.Reset(0)
	}
	l.locker.work.run(func() {
		insist(l.locker.work.ctx, time.Now().Add(l.locker.ttl), func() bool {
			if l.isOver() {
				return true
			}
			done, _ := l.settle(ctx, value, ttl)
			return done
		})
		l.Abandon()
	})
}

// insist calls try after growing pauses, until it is done, or the time is up, or ctx is done.
func insist(ctx context.Context, until time.Time, try func() (done bool)) {
	const first, longest = 20 * time.Millisecond, time.Second
	for wait := first; time.Now().Before(until); wait = min(2*wait, longest) {
		if pause(ctx, wait/2+jitter(wait/2)) != nil || try() {
			return
		}
	}
}
