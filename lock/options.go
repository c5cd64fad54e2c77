package lock

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// MaxHold is the longest time that [Locker.Claim], [Lease.Extend], [WithTTL] and [WithOpTimeout] accept: ten years.
const MaxHold = store.MaxHold

// minTTL is the shortest lease. It is clearly longer than a round trip and the margin of lease.Validity.
const minTTL = 10 * time.Millisecond

// Option changes a default of [New].
type Option func(*options)

type options struct {
	store store.Config
	renew bool
	retry Retry
	base  context.Context

	releaseOnClose bool
}

func defaultOptions() options {
	o := options{renew: true, retry: Retry{Min: 20 * time.Millisecond, Max: time.Second}, base: context.Background()}
	o.store.TTL, o.store.OpTimeout = 10*time.Second, 500*time.Millisecond
	return o
}

// newOptions returns the defaults, changed by opts. It panics if an option is nil, or if options contradict each other.
func newOptions(opts []Option) options {
	o := defaultOptions()
	option.Apply("lock.New", &o, opts)
	limit := o.store.OpTimeout
	option.Check(o.store.Replicas == 0 || o.store.ReplicaTimeout < limit,
		"lock.WithReplicas: %v is not below the time for one operation, %v (lock.WithOpTimeout)", o.store.ReplicaTimeout, limit)
	return o
}

// WithTTL sets the length of a lease, in whole milliseconds. The default is 10 s. WithTTL panics if d is below 10 ms or
// above [MaxHold].
//
// A key stays taken for that long after its holder has died. A lease is renewed at a third of its length, so shorter
// leases send more commands.
func WithTTL(d time.Duration) Option {
	option.Check(minTTL <= d && d <= MaxHold, "lock.WithTTL: %v is not between %v and ten years", d, minTTL)
	return func(o *options) { o.store.TTL = d.Truncate(time.Millisecond) }
}

// WithoutRenewal switches renewal off: a lease ends after the time given by [WithTTL], unless [Lease.Extend] is called.
// By default a lease is renewed at a third of its length until it is released, settled, abandoned or lost.
func WithoutRenewal() Option {
	return func(o *options) { o.renew = false }
}

// WithOpTimeout sets the time for one operation: how long a call to Redis may take, retries included, even if the
// server is silent. The default is 500 ms. WithOpTimeout panics if d is not positive or above [MaxHold].
//
// go-redis tries five times to connect, with pauses. If that takes longer than d, the error is only that Redis did not
// answer. With DialerRetries: 1 in the client's options the error comes at once and has the reason.
func WithOpTimeout(d time.Duration) Option {
	option.Check(0 < d && d <= MaxHold, "lock.WithOpTimeout: %v is not positive, or above ten years", d)
	return func(o *options) { o.store.OpTimeout = d }
}

// Retry sets the pauses between the polls of Acquire and Wait if no message wakes them. The pause after the n-th poll
// is random between 0 and min(Max, Min * 2^(n-1)): "full jitter", so that processes do not poll in step
// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). A pause ends at the latest when the
// lease of the claim (for an abandoned claim, its hold) would end without a renewal, if that is known. All waiters of a
// key on one Locker share the polls, and n. A poll that a message caused is not counted.
type Retry struct {
	Min      time.Duration // bound of the first pause; 0 means 20 ms, or Max if that is less
	Max      time.Duration // bound of every pause; 0 means 1 s, or Min if that is more
	Attempts int           // polls until ErrHeld, the first one included; 0 means until ctx is done
}

// WithRetry sets when Acquire and Wait poll, and how often: see [Retry]. The default is pauses of up to 20 ms, growing
// to 1 s, until ctx is done. WithRetry panics if a field is negative or Min is above Max.
func WithRetry(r Retry) Option {
	def := defaultOptions().retry
	if r.Max == 0 {
		r.Max = max(def.Max, r.Min)
	}
	if r.Min == 0 {
		r.Min = min(def.Min, r.Max)
	}
	isValid := 0 <= r.Min && r.Min <= r.Max && r.Attempts >= 0
	option.Check(isValid, "lock.WithRetry: %+v: want 0 <= Min <= Max and Attempts >= 0", r)
	return func(o *options) { o.retry = r }
}

// WithFencing gives every lease a fence, [Lease.Fence]: a number greater than that of every lease granted on its key
// before. By default leases have none. The resource that the lease guards keeps the greatest number that it has seen,
// and refuses a smaller one. Then it is safe even from a holder that was paused and goes on after its lease has ended,
// which no lease can promise by itself. (Kleppmann, How to do distributed locking, 2016, "Making the lock safe with
// fencing"; Burrows, The Chubby lock service, OSDI 2006, section 2.4, "sequencers")
//
// The fence is the greater of the last one plus 1 and the server's time in microseconds, and is drawn in one step with
// the grant. The time keeps fences growing if the counter is lost in a failover or a restart without persistence, as
// long as the clocks of the servers differ by less than the failover or restart takes. Fences have gaps: the keys of a
// namespace that have one tag share a counter, "namespace:{tag}fence". Counters never expire; there are at most 2^14.
//
// On a Cluster a free key cannot be claimed while its slot moves: the claim fails with Redis's TRYAGAIN, because its
// script names two keys, of which one does not exist.
func WithFencing() Option {
	return func(o *options) { o.store.Fencing = true }
}

// WithReplicas makes a grant, a renewal, a settlement and the release of a claim under a hold count only once n replicas
// have it. After each such write the Locker sends WAIT, with timeout in whole milliseconds
// (https://redis.io/docs/latest/commands/wait/). By default nothing waits for replicas. WithReplicas panics if n is
// below 1 or timeout below 1 ms, and New if timeout is not below the time for one operation ([WithOpTimeout]).
//
// A write that too few replicas acknowledge in time fails with [ErrNotReplicated]. A claim is then released again, a
// renewal does not extend the lease, and a value may be stored or not and is settled again in the background. A claim
// that meets a value confirms that n replicas have it before it returns the value, by a second round trip that writes
// its expiry unchanged.
//
// WAIT does not make Redis strongly consistent: a failover may still promote a replica that has not acknowledged. Set n
// to the number of all replicas that can be promoted: with a smaller n this lock is not safe in a failover. With that n
// every replica is necessary: while one cannot be reached, nothing is granted and no value is returned. Even the result
// that another caller holds a key may then take as long as timeout, because WAIT follows every command that may write.
func WithReplicas(n int, timeout time.Duration) Option {
	option.Check(n >= 1, "lock.WithReplicas: n is %d, want 1 or more", n)
	option.Check(timeout >= time.Millisecond, "lock.WithReplicas: %v is below a millisecond", timeout)
	return func(o *options) { o.store.Replicas, o.store.ReplicaTimeout = n, timeout.Truncate(time.Millisecond) }
}

// WithReleaseOnClose makes [Locker.Close] release the leases of TryAcquire, Acquire and Resume that are still held, so
// that after a deployment the next process does not wait until they have run out. The Context of each lease is done
// first, with the cause [context.Canceled]. Close waits for the releases. Leases whose release fails run out, and the error
// of Close wraps [ErrUnreleased].
//
// By default Close releases nothing, because it does not know whether the holder has stopped its work: a holder that
// goes on when its Context is done has until the end of the lease, and with this option no time at all. So end the work
// before you call Close.
//
// Close never releases what may have had its effect: a lease of [Locker.Claim], with or without a hold, one that was
// abandoned, perhaps for another process to resume, and one on which Settle was called. Packages middleware and once use
// Claim alone.
func WithReleaseOnClose() Option {
	return func(o *options) { o.releaseOnClose = true }
}

// WithBaseContext sets the context whose values go-redis's hooks see in commands that belong to no single caller:
// batches of several callers' commands, and what the Locker sends by itself (renewals, retries in the background,
// releases of claims that arrived too late, subscriptions, and polls for callers of Wait). The default is
// [context.Background]. A command that a caller waits for and that is sent alone carries the values of that caller's
// context. The cancellation and the deadline of ctx are ignored. WithBaseContext panics if ctx is nil.
//
// A tracing hook such as redisotel begins a new trace if the context has no span. A context that marks a trace as not
// sampled prevents that; package contrib/otelonce provides one. The context of [Locker.Go] has the values too. What
// go-redis sends by itself, such as a Cluster's reload of its slots, does not have them.
func WithBaseContext(ctx context.Context) Option {
	option.Check(ctx != nil, "lock.WithBaseContext: ctx is nil")
	return func(o *options) { o.base = ctx }
}
