package lock

import (
	"context"
	"fmt"
	"time"
)

// Release frees the key. It may be called again and answers the same again; after Settle it does nothing.
//
// It returns nil also when the key was gone already, and [ErrLost] when the key is somebody else's by now: then two
// have held it. After any other error nobody knows whether the key is free; it is tried again in the background until
// the lease would have run out, or for an hour if the claim may be held (see [Lease.Hold]), or until the Locker is
// closed.
//
// Release works although ctx is cancelled: it takes only the values of it, and no longer than the time for one
// operation.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	if l.decided {
		defer l.mu.Unlock()
		return l.verdict
	}
	first := !l.over
	l.mu.Unlock()

	ctx = context.WithoutCancel(ctx)
	done, err := l.release(ctx)
	if !done && first && !l.locker.work.closed() {
		l.locker.work.run(func() {
			insist(l.locker.work.ctx, l.keptUntil(), func() bool {
				done, _ := l.release(ctx)
				return done
			})
		})
	}
	return err
}

// release tries once. It is not done as long as nobody has confirmed it.
func (l *Lease) release(ctx context.Context) (done bool, err error) {
	l.mu.Lock()
	if l.decided {
		defer l.mu.Unlock()
		return true, l.verdict
	}
	// A release that arrived makes room for somebody else, whose claim is no loss of ours. But if the lease had run
	// out, or was lost, by the time of the first try, then it is.
	valid, mayBeFree := l.valid(), l.mayBeFree
	l.mayBeFree = mayBeFree || valid
	l.finish(context.Canceled)
	l.mu.Unlock()

	a := l.locker.release(ctx, l.key, l.token)

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case isForeign(a.err):
		l.decide(fmt.Errorf("%w: %w", ErrLost, ErrForeign))
	case a.err != nil:
		return false, a.wrap("release")
	case a.standing(l.token) == others && !mayBeFree && !(a.unsure && valid):
		l.decide(ErrLost)
	default:
		l.decide(nil)
	}
	return true, l.verdict
}

// maxInsist bounds how long a Release is tried again because of a hold.
const maxInsist = time.Hour

// keptUntil tells how long the key stays taken if nobody releases it, or how long that is worth trying.
func (l *Lease) keptUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mayHold == 0 {
		return l.until
	}
	return time.Now().Add(min(l.mayHold, maxInsist))
}

// decide says what Release answers from now on. The caller holds mu.
func (l *Lease) decide(verdict error) {
	if !l.decided {
		l.decided, l.verdict = true, verdict
	}
}
