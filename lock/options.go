package lock

import (
	"fmt"
	"time"
)

// minTTL keeps a lease clearly longer than what is taken off for the drift of clocks and a trip to the server.
const minTTL = 10 * time.Millisecond

// Option changes a default of [New] or [NewQuorum].
type Option func(*options)

type options struct {
	ttl       time.Duration
	renew     bool
	opTimeout time.Duration
	retry     Retry
	fencing   bool

	replicas       int // 0 without WithReplicas
	replicaTimeout time.Duration
}

func defaultOptions() options {
	return options{
		ttl:       10 * time.Second,
		renew:     true,
		opTimeout: 500 * time.Millisecond,
		retry:     Retry{Min: 20 * time.Millisecond, Max: time.Second},
	}
}

// WithTTL sets how long a lease lasts when nobody renews it, in whole milliseconds. The default is 10 s.
//
// It is how long a key stays taken after its holder died. A lease is renewed at a third of it, so a short one asks
// Redis more often. It panics below 10 ms and above [MaxHold].
func WithTTL(d time.Duration) Option {
	if d < minTTL || d > MaxHold {
		panic(fmt.Sprintf("lock.WithTTL: %v is not between %v and ten years", d, minTTL))
	}
	return func(o *options) { o.ttl = d.Truncate(time.Millisecond) }
}

// WithoutRenewal makes leases fixed: they end after the time given by [WithTTL], unless [Lease.Extend] is called. The
// default is to renew a lease at a third of its length until it is released, settled, abandoned or lost.
func WithoutRenewal() Option {
	return func(o *options) { o.renew = false }
}

// WithOpTimeout bounds how long any call to Redis may take, retries included, even if the server is silent. The default is
// 500 ms. It panics when d is not positive, and above [MaxHold]. The Locker does not rely on the client for that, unless
// the client has ContextTimeoutEnabled (see "Fast clients").
//
// go-redis tries five times to connect, with pauses, which may take all of that: the error then says that there was no
// answer. With DialerRetries: 1 among its options the error says why, and comes at once.
func WithOpTimeout(d time.Duration) Option {
	if d <= 0 || d > MaxHold {
		panic(fmt.Sprintf("lock.WithOpTimeout: %v is not positive, or above ten years", d))
	}
	return func(o *options) { o.opTimeout = d }
}

// Retry says when Acquire and Wait look at a key again if no message has told them to. The pause after the n-th look is
// random between 0 and min(Max, Min * 2^(n-1)): "full jitter", so that rivals do not march in step. It is never longer
// than what is left of the lease that they wait for. All who wait for a key on one Locker share the looks, and n.
// Looks that a message has asked for are not counted, and make no pause longer.
// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/)
type Retry struct {
	Min      time.Duration // bound of the first pause; 0 means 20 ms, or Max if that is less
	Max      time.Duration // bound of every pause; 0 means 1 s, or Min if that is more
	Attempts int           // how many looks, the first one included, until ErrHeld; 0 means until ctx is done
}

// WithRetry sets how Acquire and Wait wait. It panics on negative fields, and when Min is above Max.
func WithRetry(r Retry) Option {
	def := defaultOptions().retry
	if r.Max == 0 {
		r.Max = max(def.Max, r.Min)
	}
	if r.Min == 0 {
		r.Min = min(def.Min, r.Max)
	}
	if r.Min < 0 || r.Max < r.Min || r.Attempts < 0 {
		panic(fmt.Sprintf("lock.WithRetry: %+v: want 0 <= Min <= Max and Attempts >= 0", r))
	}
	return func(o *options) { o.retry = r }
}

// pause returns the bound of the pause after n tries.
func (r Retry) pause(n int) time.Duration {
	d := r.Min
	for ; n > 1; n-- {
		if d > r.Max/2 {
			return r.Max
		}
		d *= 2
	}
	return d
}

// WithFencing gives every lease a number, [Lease.Fence], that is greater than those of all leases granted on its key before.
// The resource that the lease guards keeps the greatest number that it has seen, and refuses a smaller one. That makes it
// safe even from a holder that was paused and woke up after its lease had ended, which no lease can promise by itself.
// (Kleppmann, How to do distributed locking, 2016, "Making the lock safe with fencing"; Burrows, The Chubby lock service,
// OSDI 2006, section 2.4, "sequencers")
//
// The number is the greater of the last one plus 1 and the server's time in microseconds. It is drawn in one step with the
// grant. The time keeps numbers growing where the counter is lost, with a failover or a restart without persistence, as
// long as the clocks of servers differ by less than that takes. Numbers have gaps: keys of a namespace with one tag share
// a counter, "namespace:{tag}fence". Counters never expire; there are at most 2^14. By default leases have no number.
func WithFencing() Option {
	return func(o *options) { o.fencing = true }
}

// WithReplicas lets nothing count as granted, renewed, held or settled before n replicas have it, waiting up to timeout, in
// whole milliseconds, for each: the WAIT command (https://redis.io/docs/latest/commands/wait/). By default nobody waits for
// replicas.
//
// What the replicas do not acknowledge in time is [ErrNotReplicated]: a grant is released again, a renewal moves nothing, a
// value may be there or not and is settled again in the background. A value that another settled is not handed out before
// n replicas have it: a claim that meets one confirms it, by a second round trip that writes its expiry again, unchanged.
//
// WAIT does not make Redis strongly consistent: a failover may still promote a replica that has not acknowledged. Every
// replica that can be promoted has what was granted only if n is the number of all of them; with a smaller n this lock is
// not safe in a failover. With that n every replica is necessary: while one cannot be reached, nothing is granted and no
// value is handed out. Even the answer that somebody else holds a key may then take as long as timeout: WAIT goes with
// every command that may write.
//
// It panics when n is below 1 or timeout below a millisecond. New panics when timeout is not below the time for one
// operation ([WithOpTimeout]).
func WithReplicas(n int, timeout time.Duration) Option {
	if n < 1 {
		panic(fmt.Sprintf("lock.WithReplicas: n is %d, want 1 or more", n))
	}
	if timeout < time.Millisecond {
		panic(fmt.Sprintf("lock.WithReplicas: %v is below a millisecond", timeout))
	}
	return func(o *options) { o.replicas, o.replicaTimeout = n, timeout.Truncate(time.Millisecond) }
}

// check panics when options contradict each other.
func (o options) check() {
	if o.replicas > 0 && o.replicaTimeout >= o.opTimeout {
		panic(fmt.Sprintf("lock.WithReplicas: %v is not below the time for one operation, %v (lock.WithOpTimeout)",
			o.replicaTimeout, o.opTimeout))
	}
}
