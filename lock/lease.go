package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// MaxHold is the longest time that [Lease.Hold] takes, ten years.
const MaxHold = store.MaxHold

// Lease is a key taken, until it is released, settled, or lost. Its methods are safe for concurrent use.
type Lease struct {
	owner  *core
	core   *lease.Core
	handle lease.Handle // this caller's share in it, see NewContext
	fence  int64
}

// grant is a lease and its first handle, in one allocation.
type grant struct {
	core  lease.Core
	first Lease
}

// newLease returns the first handle on a lease that was asked for at start.
func newLease(ctx context.Context, owner *core, backend lease.Backend, id lease.ID, fence int64, start time.Time) *Lease {
	g := new(grant)
	g.first.owner, g.first.core, g.first.fence = owner, &g.core, fence
	g.core.Init(&owner.leases, backend, id, background.WithoutEnd(ctx), start, &g.first.handle)
	return &g.first
}

// Context is done when the lease is over: after Release and Settle with the cause [context.Canceled], and with the cause
// [ErrLost] when the lease is lost. A lease that cannot be renewed is lost before the server lets the key go, at
// [Lease.Until]. One that the server has lost, or given to another, is lost when the next renewal finds that out: after a
// third of the lease's length, or at Until if Redis does not answer or the lease is not renewed ([WithoutRenewal]).
//
// It has the values of the context that the lease was asked for with, but not its cancellation.
func (l *Lease) Context() context.Context { return l.handle.Context() }

// Err returns nil until Context is done, and then the cause of that. It sends nothing, and costs less than a context.
func (l *Lease) Err() error { return l.handle.Err() }

// Token identifies this lease among all others on the key: a random UUID.
func (l *Lease) Token() string { return l.core.ID().Token.String() }

// Fence returns the lease's number: greater than that of every lease granted on its key before. It is 0 without
// [WithFencing].
func (l *Lease) Fence() int64 { return l.fence }

// Until returns the time until which the lease is valid if no further renewal succeeds. It has a monotonic clock reading.
func (l *Lease) Until() time.Time { return l.core.Until() }

// Abandon ends the renewals and releases nothing. Context is done when the lease has run out. The key is then free again,
// or reads as [Abandoned] if it is held (see [Lease.Hold]). Abandon is for an operation that may or may not have happened:
// a rival that came at once would do it again.
func (l *Lease) Abandon() { l.handle.Abandon() }

// AbandonAt abandons the lease at t, if it is not over before. It is for an operation that has a time limit, and costs no
// timer. The last call counts; the zero time means never.
func (l *Lease) AbandonAt(t time.Time) { l.handle.AbandonAt(t) }

// Extend makes the lease last for at least d from now, in whole milliseconds. Neither Extend nor a later renewal ever
// shortens a lease.
//
// [ErrLost] means that the lease is over. After any other error the lease is as it was; a d below 10 ms or above ten years
// is such an error. If ctx is the context of another lease, the error may wrap the cause of its end, which is ErrLost as
// well: Err tells what has become of this one.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < minTTL || d > MaxHold {
		return fmt.Errorf("lock: extend: %v is not between %v and ten years", d, minTTL)
	}
	return l.handle.Extend(ctx, d.Truncate(time.Millisecond))
}

// Hold keeps the claim for d after the lease has ended, at least a millisecond and at most ten years. It is for an operation
// that must not happen twice even if this process dies in the middle of it: a claim that is held and no longer renewed
// reads as [Abandoned], not as free, until d is over. Release, Settle and Forget end it earlier; the owner may settle late,
// as long as its claim stands.
//
// The key then expires after d plus the length of the lease, which every renewal restores. A lease has run out when no more
// than d is left; Redis's clock alone decides that. The claim carries d, so that every Locker decides alike.
//
// [ErrLost] means that the lease is over, and [errors.ErrUnsupported] that it is a Quorum's. These, and the error for a d
// out of range, change nothing. After any other error it is not known whether the hold is there, and the lease is no
// longer renewed: release it. (If ctx or the time for one operation ended while a renewal or an Extend was in flight,
// nothing was sent, and the lease is still renewed.) A Hold that reaches Redis after its caller timed out is ignored.
func (l *Lease) Hold(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond || d > MaxHold {
		return fmt.Errorf("lock: hold: %v is not between a millisecond and ten years", d)
	}
	return l.handle.Hold(ctx, d.Truncate(time.Millisecond))
}

// Settle leaves value behind under the key for ttl (in whole milliseconds, from now) and ends the lease, in one step. From
// then on a claim of the key reads the value.
//
// Settle writes where our claim stands, and also where there is nothing: a server that restarted empty must not turn what
// has happened into what happens again. Over somebody else's claim or value it writes nothing and returns [ErrLost], as it
// does after Release and after another Settle. On a Quorum's lease it returns [errors.ErrUnsupported]. A ttl below a
// millisecond is an error. Neither changes anything.
//
// After any other error it is not known whether the value arrived. If the error is [ErrPending], Settle goes on in the
// background, with pauses that grow to 30 s, until it succeeds, another has the key, an hour has passed, or ttl is over. A
// late value gets what is left of its ttl, counted from this call. Until then the claim is kept alive, but not with
// [WithoutRenewal], and Abandon has no effect. [Locker.Close] tries each such value once more. A Locker keeps at most 64 MiB
// of them, 16 KiB for each included, and gives up the oldest for a new one; [Locker.Stats] counts them. Settle may be called again with the same value, and returns nil if the
// background has succeeded meanwhile.
//
// Settle works although ctx is cancelled: it uses only the values of ctx, and takes no longer than the time for one
// operation. The value is copied.
func (l *Lease) Settle(ctx context.Context, value []byte, ttl time.Duration) error {
	return l.SettleAppend(ctx, len(value), func(b []byte) []byte { return append(b, value...) }, ttl)
}

// SettleAppend is Settle of what appendTo appends to the bytes that it gets, which saves a copy. There is room for size
// bytes behind them. SettleAppend calls appendTo at most once, before it returns: not for a ttl that is too short, a
// Quorum's lease, or a lease that is released or settled. It panics if the result does not begin with the bytes that
// appendTo got. A second call after an error must append the same bytes.
func (l *Lease) SettleAppend(ctx context.Context, size int, appendTo func([]byte) []byte, ttl time.Duration) error {
	if ttl < time.Millisecond {
		return fmt.Errorf("lock: settle: %v is below a millisecond", ttl)
	}
	return l.handle.Settle(background.WithoutEnd(ctx), size, appendTo, ttl)
}

// Release frees the key. It may be called again and returns the same; after Settle it does nothing. Of several handles on
// one lease (see [NewContext]) the last Release frees the key, and the others do nothing.
//
// Release returns nil if the key has already expired, and [ErrLost] if another holder has it: both may have run. After any
// other error it is not known whether the key is free. Release is then tried again in the background until the lease, and
// a hold behind it (see [Lease.Hold]), would have run out, for an hour at most, or until the Locker is closed.
//
// Release works although ctx is cancelled: it uses only the values of ctx, and takes no longer than the time for one
// operation.
func (l *Lease) Release(ctx context.Context) error {
	return l.handle.Release(background.WithoutEnd(ctx))
}

// ReleaseInBackground is Release for a caller that cannot wait for the answer: it returns at once. [Locker.Close] waits
// for the release.
func (l *Lease) ReleaseInBackground(ctx context.Context) {
	l.handle.ReleaseInBackground(background.WithoutEnd(ctx))
}
