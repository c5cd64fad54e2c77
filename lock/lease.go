package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// Lease is a key taken, until it is released, settled, or lost. Its methods are safe for concurrent use.
type Lease struct {
	*grant
	parent context.Context // of ctx: has its values, and is never done

	// guarded by grant.mu
	released bool            // this handle was
	cause    error           // of its end; nil before
	ctx      context.Context // nil until somebody asks for it: many do not, and it is two allocations
	cancel   context.CancelCauseFunc
}

// Context is done when the lease is over: after Release and Settle with the cause [context.Canceled], and with the
// cause [ErrLost] before the server lets the key go, when the lease could not be renewed, or at the latest a third of
// its length after the server lost it. It has the values of the context that the lease was asked for with, but not its
// cancellation.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(l.parent)
		if l.cause != nil {
			l.cancel(l.cause)
		}
	}
	return l.ctx
}

// Err is nil until Context is done, and then the cause of that. It asks nobody, and costs less than to make a context.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Token identifies this lease among all others on the key: a random UUID.
func (l *Lease) Token() string { return l.token.String() }

// Fence is the lease's number among all that were granted on its key: greater than that of every earlier one. It is 0
// without [WithFencing].
func (l *Lease) Fence() int64 { return l.fence }

// Until tells how long the lease is valid if no further renewal succeeds. It carries a monotonic clock reading.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Abandon ends the renewals and releases nothing: Context is done when the lease has run out, and the key is free again
// then, or reads as [Abandoned] if it is held (see [Lease.Hold]). It is for an operation of which nobody knows whether
// it happened: a rival that came at once would do it again.
func (l *Lease) Abandon() {
	if !l.isReleased() {
		l.abandon()
	}
}

// AbandonAt is Abandon at t, if the lease is not over by then. It is for an operation that has a time limit, and costs
// no timer. The last call counts, and the zero time means never.
func (l *Lease) AbandonAt(t time.Time) {
	if !l.isReleased() {
		l.renewUntil(t)
	}
}

// Extend makes the lease last for at least d from now, in whole milliseconds, and ten years at the most. Neither it nor
// a later renewal ever shortens a lease. [ErrLost] means that the lease is over; after any other error it is as it was,
// as it is when d is more than that or below 10 ms, which is an error too. (If ctx is the context of another lease, the
// error may have the cause of its end, and that is ErrLost as well: see Err for what has become of this one.)
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < minTTL || d > MaxHold {
		return fmt.Errorf("lock: extend: %v is not between %v and ten years", d, minTTL)
	}
	if l.Err() != nil {
		return ErrLost
	}
	return l.inTurn(ctx, "extend", func(ctx context.Context) error { return l.extend(ctx, d.Truncate(time.Millisecond)) })
}

// Hold keeps the claim for d after the lease has ended, d being at least a millisecond and at most ten years. It is for
// an operation that must not happen twice even if this process dies in the middle of it: a claim that is held and no
// longer renewed reads as [Abandoned] and not as free, until d is over. Release, Settle and Forget end it earlier; the
// owner may settle late, as long as its claim stands.
//
// The key then expires after d and the length of the lease, which every renewal restores. No more than d left means
// that the lease has run out: Redis's clock alone judges that. d is written into the claim, so that every Locker judges
// it alike.
//
// [ErrLost] means that the lease is over, and [errors.ErrUnsupported] that it is a Quorum's; these, and the error for a d
// out of range, change nothing. After any other error nobody knows whether the hold is there, and the lease is not
// renewed any more: release it. (If ctx or the time was over while a renewal or an Extend was under way, then nothing
// was sent, and it is still renewed.) A Hold that arrives later than its caller would have waited for it has no effect,
// so that a claim which nobody works under is not held.
func (l *Lease) Hold(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond || d > MaxHold {
		return fmt.Errorf("lock: hold: %v is not between a millisecond and ten years", d)
	}
	locker, ok := l.keeper.(*Locker)
	if !ok {
		return fmt.Errorf("lock: hold: %w", errors.ErrUnsupported)
	}
	if l.Err() != nil {
		return ErrLost
	}
	return l.inTurn(ctx, "hold", func(ctx context.Context) error {
		return l.keepFor(ctx, locker, d.Truncate(time.Millisecond))
	})
}

// Settle leaves value behind under the key for ttl (in whole milliseconds, from now) and ends the lease, in one step.
// From then on a claim of the key reads it.
//
// It writes where our claim stands, and also where there is nothing: a server that restarted empty must not turn what
// has happened into what happens again. Over somebody else's claim or value it writes nothing and returns [ErrLost], as
// it does after Release and after another Settle. On a Quorum's lease it returns [errors.ErrUnsupported], and for a ttl
// below a millisecond an error too; both change nothing.
//
// After any other error nobody knows whether the value arrived. If the error is [ErrPending], Settle goes on in the
// background, with pauses that grow to 30 s, until it succeeds, another has the key, an hour has passed, or ttl is over:
// a late value gets what is left of its ttl, counted from this call. Until then the claim is kept alive, but not with
// [WithoutRenewal]. [Locker.Close] tries each such value once more. A Locker keeps at most 64 MiB of them, and gives up
// the oldest for a new one; [Locker.Stats] counts them. Settle may be called again with the same value, and returns nil
// if that has succeeded meanwhile.
//
// Settle works although ctx is cancelled: it takes only the values of it, and no longer than the time for one
// operation. The value is copied.
func (l *Lease) Settle(ctx context.Context, value []byte, ttl time.Duration) error {
	return l.SettleAppend(ctx, len(value), func(b []byte) []byte { return append(b, value...) }, ttl)
}

// SettleAppend is Settle of what appendTo appends to the bytes that it is given, which saves a copy. There is room for
// size bytes there. It is called at most once, before SettleAppend returns: not for a ttl that is too short, a Quorum's
// lease, or one that is released or settled. SettleAppend panics when what it returns does not begin with what it was
// given. A second call after an error has to append the same bytes.
func (l *Lease) SettleAppend(ctx context.Context, size int, appendTo func([]byte) []byte, ttl time.Duration) error {
	if ttl < time.Millisecond {
		return fmt.Errorf("lock: settle: %v is below a millisecond", ttl)
	}
	locker, ok := l.keeper.(*Locker)
	if !ok {
		return fmt.Errorf("lock: settle: %w", errors.ErrUnsupported)
	}
	called, before, over := l.beginSettle()
	if over && before == nil {
		return ErrLost
	}
	head := appendValueHead(make([]byte, 0, valuePos+size), l.token, called)
	stored := appendTo(head)
	if !bytes.HasPrefix(stored, head) {
		panic("lock.SettleAppend: appendTo has not appended")
	}
	if over {
		if bytes.Equal(stored, before) {
			return nil
		}
		return ErrLost
	}
	return l.settle(settlement{locker: locker, ctx: detached(ctx), stored: stored, called: called, ttl: ttl})
}

// Release frees the key. It may be called again and answers the same again; after Settle it does nothing. Of several
// handles on one lease (see [NewContext]) the last Release frees the key, and the others do nothing.
//
// It returns nil also when the key was gone already, and [ErrLost] when the key is somebody else's by now: then two
// have held it. After any other error nobody knows whether the key is free; it is tried again in the background until
// the lease, and a hold behind it (see [Lease.Hold]), would have run out, for an hour at the most, or until the Locker
// is closed.
//
// Release works although ctx is cancelled: it takes only the values of it, and no longer than the time for one
// operation.
func (l *Lease) Release(ctx context.Context) error {
	if !l.leave(l) {
		return nil
	}
	return l.free(detached(ctx))
}

// ReleaseInBackground is Release for a caller that cannot wait for the answer: it returns at once. [Locker.Close] waits
// for the release.
func (l *Lease) ReleaseInBackground(ctx context.Context) {
	if l.leave(l) {
		l.work.run(func() { _ = l.free(detached(ctx)) }) // tried again like any release
	}
}

// end ends the handle, unless it has ended. The caller holds mu.
func (l *Lease) end(cause error) {
	if l.cause != nil {
		return
	}
	l.cause = cause
	if l.ctx != nil {
		l.cancel(cause)
	}
}

// beginSettle returns when Settle was first called, whether this handle may no longer settle, and what a Settle in the
// background has left behind.
func (l *Lease) beginSettle() (called time.Time, before []byte, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settleCalled.IsZero() {
		l.settleCalled = time.Now()
	}
	if l.released {
		return l.settleCalled, nil, true
	}
	return l.settleCalled, l.settled, l.over
}

// isReleased tells whether this handle has a say no more.
func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released || l.over
}
