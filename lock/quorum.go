package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
)

// Quorum hands out leases that stand on a majority of independent Redis masters, so that no single one of them can lose
// a lease: RedLock (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/). It is safe for concurrent
// use.
//
// All masters are asked at the same time, and the answers of a majority decide: one that is silent costs nothing. A
// lease lasts, from before it was asked for, for its length without one percent and two milliseconds ([WithTTL]). It is
// renewed by a majority, and lost when no majority has it any more. What fails is released on every master, as is the
// end, also on one whose answer came late.
//
// # A master that restarts
//
// A master that comes back without the leases that it had granted may grant them again: with two of five holding a
// lease and a third one empty, somebody else can have a majority as well. So a master must not forget, or not answer
// until all that it has forgotten is over:
//
//   - delayed rejoin: whatever starts it again waits for longer than the longest lease (the TTL, or what Extend asked for)
//     before it lets clients in, or
//   - persistence with appendfsync always: what was acknowledged is on disk, and read back. Any other fsync policy loses
//     up to what it had not yet written.
//
// A renewed lease may be older than any delay, and stays safe: a master that is away does not count for its renewal.
// But neither does one that has forgotten the lease, or had never heard of it: renewals put it nowhere anew. A lease
// stands for as long as the same majority has kept it since the grant; when that is no more, its holder is told.
//
// # What it does not have
//
// It has no Claim, and its leases neither Settle nor Hold ([errors.ErrUnsupported]): what is written to a majority can
// be read back safely only with ballots and a second round, as in Paxos, which is another protocol and not this lock.
// It has no fence: counters that each master draws in the same trip as the grant do not grow from one majority to the
// next. A holder that was paused can thus not be refused by its number (Kleppmann, How to do distributed locking,
// 2016). It has no Wait, Check, Forget and StorageKey either. And masters that share a machine, a disk or a power supply
// do not fail independently.
type Quorum struct {
	core   *core
	stores majority
}

// NewQuorum returns a Quorum on independent masters. Each client is for one of them; see [New] for what is done with
// it.
//
// It panics when the number of clients is even or below three, when one of them is nil, a *redis.Ring or there twice,
// when the namespace is empty or has braces, and with [WithFencing] or [WithReplicas].
func NewQuorum(clients []redis.UniversalClient, namespace string, opts ...Option) *Quorum {
	if len(clients) < 3 || len(clients)%2 == 0 {
		panic(fmt.Sprintf("lock.NewQuorum: %d clients, want an odd number from 3 on", len(clients)))
	}
	c := newCore("lock.NewQuorum", namespace, opts)
	if c.options.fencing {
		panic("lock.WithFencing: a Quorum has no fence")
	}
	if c.options.replicas > 0 {
		panic("lock.WithReplicas: a Quorum's masters have no replicas")
	}
	q := &Quorum{core: c}
	q.stores.core = c
	for i, client := range clients {
		checkClient("lock.NewQuorum", client)
		if slices.Index(clients, client) < i {
			panic("lock.NewQuorum: the same client is there twice")
		}
		q.stores.all = append(q.stores.all, c.newStore(client))
	}
	return q
}

// TryAcquire takes key if a majority of the masters grants it, in one round trip. That somebody holds it is ok ==
// false, not an error. [ErrSettled] and [ErrForeign] say that a majority has what is no claim there. Any other error
// means that there was no majority to say either, within the time for one operation ([WithOpTimeout]).
//
// With a ctx of [NewContext] for a lease on this key it asks nobody, and joins that lease.
func (q *Quorum) TryAcquire(ctx context.Context, key string) (lease *Lease, ok bool, err error) {
	if err := q.core.ready(ctx, "acquire"); err != nil {
		return nil, false, err
	}
	k := q.core.namespace.Key(key)
	if lease := q.core.join(ctx, k); lease != nil {
		return lease, true, nil
	}
	lease, err = q.stores.claim(ctx, k)
	return lease, lease != nil, err
}

// Acquire takes key, and waits while somebody else holds it: it tries again as [WithRetry] says, each time on its own,
// for there is no single master that could send a message.
//
// The error is [ErrHeld] when the tries are spent, or when ctx is done and the key was held at the last look (then it
// is the cause of ctx's end as well). Any other error is one of [Quorum.TryAcquire], at once.
func (q *Quorum) Acquire(ctx context.Context, key string) (*Lease, error) {
	for n := 1; ; n++ {
		lease, ok, err := q.TryAcquire(ctx, key)
		switch {
		case err != nil && n > 1 && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)): // held at the last look
			return nil, heldUntil(ctx)
		case err != nil:
			return nil, err
		case ok:
			return lease, nil
		case n == q.core.options.retry.Attempts:
			return nil, ErrHeld
		}
		if background.Pause(ctx, background.Jitter(q.core.options.retry.pause(n))) != nil {
			return nil, heldUntil(ctx)
		}
	}
}

// Close ends the background work: renewals and releases that are tried again. It waits for what is under way, at most
// until ctx is done, and then returns the cause of that; see [Locker.Close].
func (q *Quorum) Close(ctx context.Context) error { return q.core.close(ctx) }
