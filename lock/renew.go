package lock

import (
	"context"
	"time"
)

// wake returns when tick has to look at a lease that was granted or renewed at start. The caller holds mu.
func (l *Lease) wake(start time.Time) time.Time {
	if next := start.Add(l.locker.ttl / 3); l.renewing && next.Before(l.until) {
		return next
	}
	return l.until
}

// tick renews the lease, or ends its context when it has run out.
func (l *Lease) tick() {
	start := time.Now()
	l.mu.Lock()
	until, renewing := l.until, l.renewing && !l.over && !l.locker.work.closed()
	if !l.over && !start.Before(until) {
		l.lose()
		renewing = false
	}
	l.mu.Unlock()

	next := until
	if renewing {
		// Not longer than the lease lasts: then its end is due, whether or not an answer has come.
		ctx, cancel := context.WithDeadline(context.WithoutCancel(l.ctx), until)
		defer cancel()
		if l.extend(ctx, l.locker.ttl) == nil {
			next = start.Add(l.locker.ttl / 3)
		} else {
			next = time.Now().Add(jitter(l.locker.ttl / 10))
		}
	}
	l.sleep(next)
}

// sleep lets tick run at the time given, and not later than the lease lasts.
func (l *Lease) sleep(next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.ctx.Err() != nil {
		return
	}
	if l.until.Before(next) {
		next = l.until
	}
	l.timer.Reset(time.Until(next))
}

// extend moves the end of the lease on the server, and then here.
func (l *Lease) extend(ctx context.Context, d time.Duration) error {
	l.mu.Lock()
	hold := l.hold
	l.mu.Unlock()
	start := time.Now()
	a := l.locker.extend(ctx, l.key, l.token, hold+d)

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.standing(a, "extend"); err != nil {
		return err
	}
	if a.standing(l.token) == claimed {
		l.move(start, d)
	}
	return nil
}

// standing returns nil if the claim stands, by the answer of a script that leaves it there. The caller holds mu.
func (l *Lease) standing(a answer, doing string) error {
	switch {
	case l.ctx.Err() != nil: // it was told lost or over meanwhile, and stays so
		return ErrLost
	case isForeign(a.err):
		l.lose()
		return ErrLost
	case a.err != nil:
		return a.wrap(doing)
	}
	switch a.standing(l.token) {
	case claimed, left: // left: a Settle has arrived whose reply did not; it will learn that itself
		return nil
	}
	l.lose()
	return ErrLost
}

// move lets the lease last for d from start. It never shortens it. The caller holds mu.
func (l *Lease) move(start time.Time, d time.Duration) {
	if until := start.Add(validity(d)); until.After(l.until) {
		l.until, l.expiry = until, start.Add(d)
	}
}

// lose ends the context because the server no longer holds our claim. Settle may still be tried. The caller holds mu.
func (l *Lease) lose() {
	l.renewing = false
	l.timer.Stop()
	l.end(ErrLost)
}
