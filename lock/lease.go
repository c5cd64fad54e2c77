package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// Lease is the holder's side of a claim: it renews the claim until it is released, settled, abandoned or lost. Its
// methods are safe for concurrent use.
type Lease struct {
	store  *store.Store // of its Locker
	core   *lease.Core  // shared by all handles on the lease
	handle lease.Handle // this caller's share in the lease, see NewContext
	fence  int64        // 0 without WithFencing
}

// Context returns a context that is done when the lease is over. Its cause is [context.Canceled] after Release,
// Settle, or Close with [WithReleaseOnClose], and [ErrLost] when the lease is lost. A lease is lost in two cases:
//
//   - The lease cannot be renewed. It is lost at [Lease.Until], before the key expires.
//   - The key no longer holds the claim: the server has lost it, or has granted the key to another caller. The lease is
//     lost when the next renewal finds that, within a third of its length, or at Until if Redis does not answer or the
//     lease is not renewed ([WithoutRenewal]).
//
// After a pause of the process, the timer that ends the lease is late by some milliseconds. Err and Done of this context,
// and [Lease.Err], compare Until with the clock and end the lease themselves. A derived context waits for the timer or
// for such a call.
//
// It carries the values of the context with which the key was taken, but not its cancellation.
func (l *Lease) Context() context.Context { return l.handle.Context() }

// Err returns nil until Context is done, and then its cause. Called past Until, it ends the lease first. It sends nothing,
// and costs less than Context.
func (l *Lease) Err() error { return l.handle.Err() }

// Token returns the token of the lease's claim: a random UUID (RFC 9562, section 5.4). With it another process can take
// a lock's lease over: [Locker.Resume].
func (l *Lease) Token() string { return l.core.ID().Token.String() }

// Fence returns a number that is greater than that of every lease granted on this key before. It is 0 without
// [WithFencing].
func (l *Lease) Fence() int64 { return l.fence }

// Until returns the time until which the lease is valid if no further renewal succeeds. It has a monotonic clock
// reading.
func (l *Lease) Until() time.Time { return l.core.Until() }

// Abandon stops the renewals and releases nothing. Context is done when the lease has run out. The key is then free
// again, or [Abandoned] if the claim has a hold. Abandon is for work that may or may not have taken effect:
// after a Release another caller would run it again at once.
func (l *Lease) Abandon() { l.handle.AbandonAt(time.Now()) }

// AbandonAt stops the renewals from t on, as Abandon does at once. It is for work that has a time limit. It
// costs no timer: the first renewal that is due after t is not sent. The last call of Abandon or AbandonAt counts; the
// zero time means never.
func (l *Lease) AbandonAt(t time.Time) { l.handle.AbandonAt(t) }

// Extend extends the lease to at least d from now, in whole milliseconds. Neither Extend nor a later renewal ever
// shortens a lease. d must be from 10 ms to [MaxHold].
//
// [ErrLost] means that the lease is over. After any other error [Lease.Until] is as before. If ctx is the context of
// another lease, the error may wrap the cause of that context, which may be ErrLost as well: Err tells
// whether this lease is over.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < minTTL || d > MaxHold {
		return fmt.Errorf("lock: extend: %v is not between %v and ten years", d, minTTL)
	}
	return l.handle.Extend(ctx, d.Truncate(time.Millisecond))
}

// Settle stores value under the key for ttl, in whole milliseconds from now, and ends the lease, in one step. From then
// on a claim of the key returns the value. ttl must be at least 1 ms.
//
// Settle writes if the key holds the lease's claim, and also if the key is absent: a server that restarted empty must
// not cause a second run of the work. If the key holds anything else, Settle writes nothing and returns [ErrLost].
//
// A lease is settled once. A second Settle returns ErrLost at once, also with the same value and while the first one is
// in flight or has failed. So does a Settle after Release. After the error for a ttl below 1 ms, nothing has changed.
//
// After any other error the value may be stored or not. If the error wraps [ErrPending], the value is pending: it is
// stored in the background as soon as Redis answers, unless another caller has the key, an hour has passed, ttl is
// over, or the lease is released. A late value gets what is left of its ttl. Meanwhile the claim is renewed (except with
// [WithoutRenewal]), and Abandon has no effect. A caller that claims or looks at the key by the same Locker stores the
// value first, and then gets it. While Redis does not answer, such a caller gets an error that wraps [ErrSettled]: the
// work has taken effect.
//
// The values of a server are stored in batches, one after the other, so that live claims hardly wait for them; while
// the server stores none, there are pauses of up to a second. [Locker.Close] tries each value once more. A Locker keeps
// at most 64 MiB of them, counting 16 KiB more for each, and to make room gives up the largest. Of equally large ones
// it gives up the newest, and all of at most 1 KiB count as equally large. [Locker.Stats] counts them.
//
// Settle ignores the cancellation and the deadline of ctx, and uses only its values. It returns within the time for one
// operation ([WithOpTimeout]). It copies value.
func (l *Lease) Settle(ctx context.Context, value []byte, ttl time.Duration) error {
	return l.SettleAppend(ctx, len(value), func(b []byte) []byte { return append(b, value...) }, nil, ttl)
}

// SettleAppend is Settle of the value that appendTo appends to its argument, which saves a copy. The argument has
// capacity for size bytes more. SettleAppend calls appendTo at most once, before it returns, and not at all if ttl is
// too short, or the lease was released or settled. It panics if the result does not begin with the argument.
//
// appendShort appends a short value likewise, or is nil. If a pending value of more than 1 KiB would be given up for lack
// of room, a shorter one takes its place, and is stored instead: the work is not done again. [Locker.Stats] counts
// the value as given up. appendShort is called at most once, before SettleAppend returns, and only if Redis did not answer.
func (l *Lease) SettleAppend(
	ctx context.Context, size int, appendTo, appendShort func([]byte) []byte, ttl time.Duration,
) error {
	if ttl < time.Millisecond {
		return fmt.Errorf("lock: settle: %v is below a millisecond", ttl)
	}
	return l.handle.Settle(background.WithoutEnd(ctx), size, appendTo, appendShort, ttl)
}

// Release frees the key and ends the lease. It may be called again, and then returns the same. Once a Settle has stored
// its value, Release does nothing. But it gives up a value that is pending ([ErrPending]), and another caller does the
// work again: do not defer Release in a function that calls Settle. If several handles share the lease (see
// [NewContext]), the last Release frees the key, and the others only end their handle.
//
// Release returns nil if the key has already expired, and [ErrLost] if another holder has it: both may have run. After
// any other error the key may be free or not. Release is then retried in the background until the lease would have run
// out or the Locker is closed. If the claim has a hold, it is retried for an hour, see [Locker.Claim].
//
// Release ignores the cancellation and the deadline of ctx, and uses only its values. It returns within the time for
// one operation ([WithOpTimeout]).
func (l *Lease) Release(ctx context.Context) error {
	return l.handle.Release(background.WithoutEnd(ctx))
}
