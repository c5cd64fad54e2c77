package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
)

// Quorum grants leases on a majority of independent Redis masters, so that no single one of them can lose a lease:
// RedLock (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/). It is safe for concurrent use.
//
// A Quorum sends each command to all masters at the same time, and the results of a majority decide. So a minority of
// silent masters delays nothing. A lease is valid for its length ([WithTTL]) less one percent and two milliseconds,
// counted from the start of the claim or renewal, before its first command is sent. A majority renews it, and it is
// lost when no majority has it any more. A claim that failed, or whose lease has ended, is released on every master,
// also on one whose reply came late.
//
// # A master that restarts
//
// A master that comes back without the claims that it had granted may grant them again: if two of five masters have a
// claim and a third one has lost it, another caller can have a majority too. So a master must either not forget claims,
// or not answer until all claims that it may have forgotten are over:
//
//   - Delayed rejoin: after a restart the master lets no client in for longer than the longest lease (the TTL, or the
//     longest Extend).
//   - Persistence with appendfsync always: what was acknowledged is on disk, and is read back. Any other fsync policy
//     may lose the latest writes.
//
// A renewed lease may be older than any delay, and is still safe: a renewal never writes a claim where there is none.
// So a master that is down, or that has lost the claim, does not count. A lease lasts for as long as the same majority
// has kept its claim since the grant. After that its holder gets [ErrLost].
//
// # What it does not have
//
// A Quorum has no Claim, and its leases have neither Settle nor Hold ([errors.ErrUnsupported]): what is written to a
// majority can be read back safely only with ballots and a second round, as in Paxos, which is another protocol. It has
// no fence, because counters that each master draws in the round trip of the grant do not grow from one majority to the
// next. So a holder that was paused cannot be refused by its number (Kleppmann, How to do distributed locking, 2016,
// "Making the lock safe with fencing"). It has no Wait, Check, Forget and StorageKey either. Masters that share a
// machine, a disk or a power supply do not fail independently.
type Quorum struct {
	common  *common
	masters majority
}

// NewQuorum returns a Quorum on independent masters, one for each client. It uses the clients as [New] does.
//
// It panics if the number of clients is even or below three, if a client is nil, a *redis.Ring or appears twice, if the
// namespace is empty or has braces, and with [WithFencing] or [WithReplicas].
func NewQuorum(clients []redis.UniversalClient, namespace string, opts ...Option) *Quorum {
	if len(clients) < 3 || len(clients)%2 == 0 {
		panic(fmt.Sprintf("lock.NewQuorum: %d clients, want an odd number, at least 3", len(clients)))
	}
	c := newCommon("lock.NewQuorum", namespace, opts)
	if c.options.fencing {
		panic("lock.WithFencing: a Quorum has no fence")
	}
	if c.options.replicas > 0 {
		panic("lock.WithReplicas: a Quorum's masters have no replicas")
	}
	q := &Quorum{common: c}
	q.masters.common = c
	for i, client := range clients {
		checkClient("lock.NewQuorum", client)
		if slices.Index(clients, client) < i {
			panic("lock.NewQuorum: the same client appears twice")
		}
		q.masters.all = append(q.masters.all, c.newStore(client))
	}
	return q
}

// TryAcquire takes key if a majority of the masters grants it, in one round trip. ok is false, without an error, if
// somebody else holds it. [ErrSettled] and [ErrForeign] mean that the key holds a value, or something foreign, on a
// majority. Any other error means that no majority answered within the time for one operation ([WithOpTimeout]), or
// that ctx is done.
//
// If ctx comes from [NewContext] with a lease on this key, TryAcquire sends nothing and joins that lease.
func (q *Quorum) TryAcquire(ctx context.Context, key string) (lease *Lease, ok bool, err error) {
	if err := q.common.ready(ctx, "acquire"); err != nil {
		return nil, false, err
	}
	k := q.common.namespace.Key(key)
	if lease := q.common.join(ctx, k); lease != nil {
		return lease, true, nil
	}
	lease, err = q.masters.claim(ctx, k)
	return lease, lease != nil, err
}

// Acquire takes key, and waits while somebody else holds it. It calls TryAcquire again at the pauses of [WithRetry].
// Callers share nothing, and no message wakes them, because no single master could send one.
//
// The error is [ErrHeld] when the budget of WithRetry is spent, and when ctx is done and the last try found the key
// held (then it also wraps the cause of ctx). Acquire returns any other error of [Quorum.TryAcquire] at once.
func (q *Quorum) Acquire(ctx context.Context, key string) (*Lease, error) {
	for n := 1; ; n++ {
		lease, ok, err := q.TryAcquire(ctx, key)
		switch {
		case err != nil:
			ctxEnded := ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
			if ctxEnded && n > 1 { // the try before found the key held
				return nil, heldUntil(ctx)
			}
			return nil, err
		case ok:
			return lease, nil
		case n == q.common.options.retry.Attempts:
			return nil, ErrHeld
		}
		if background.Pause(ctx, background.Jitter(q.common.options.retry.pause(n))) != nil {
			return nil, heldUntil(ctx)
		}
	}
}

// Close ends the background work: renewals, and the retries of releases. It waits for what is in flight. If ctx is done
// first, it returns the cause of ctx. See [Locker.Close].
func (q *Quorum) Close(ctx context.Context) error { return q.common.close(ctx) }
