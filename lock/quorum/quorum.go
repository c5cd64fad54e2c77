// Package quorum grants leases on a majority of independent Redis masters, so that no single one of them can lose a
// lease: RedLock (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/). It uses package lock through
// its exported names alone: a [Quorum] has one [lock.Locker] for each master.
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
// So a master that is down, or that has lost the claim, does not count.
//
// # What it does not have
//
// A Quorum has no Claim, and a [Lease] has no Settle: a value that is written to a majority can be read back safely
// only with ballots and a second round, as in Paxos, which is another protocol. It has no fence: counters that each
// master draws in the round trip of the grant do not grow from one majority to the next. So a holder that was paused
// cannot be refused by its number (Kleppmann, How to do distributed locking, 2016, "Making the lock safe with
// fencing"). Its leases are not handed over (lock.Locker.Resume). Masters that share a machine, a disk or a power supply do
// not fail independently.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/lock"
)

// Quorum grants leases on the keys of one namespace on several independent masters. It is safe for concurrent use.
//
// A Quorum sends each command to all masters at the same time, and the results of a majority decide. So a minority of
// silent masters delays nothing. Each master's claim is a lease of its own, with its own renewals. A claim that no
// lease needs is released, also on a master whose reply came late or was lost. After a lost reply, the release is one
// operation, with its retries. If the master is down for longer, the claim expires after the length of a lease
// ([lock.WithTTL]). Meanwhile it counts against other callers on that master alone. (A Locker retries a release for longer
// only under a hold, see [lock.Locker.Claim]. A Quorum has no holds: they would cost each caller that finds the key
// held a second round trip.)
type Quorum struct {
	lockers []*lock.Locker // one for each master
	retry   lock.Retry
}

// New returns a Quorum on independent masters, one for each client: no replicas and no Cluster. It uses the clients as
// [lock.New] does, and gives each master's Locker the options. A Quorum waits for [lock.WithOpTimeout] only if no majority
// answers earlier. [lock.WithFencing] has no use here, nor has [lock.WithReplicas].
//
// It panics if the number of clients is even or below three, if a client appears twice, and where lock.New does.
func New(clients []redis.UniversalClient, namespace string, opts ...lock.Option) *Quorum {
	isOdd := len(clients)%2 == 1
	option.Check(len(clients) >= 3 && isOdd, "quorum.New: %d clients, want an odd number, at least 3", len(clients))
	q := &Quorum{}
	for i, client := range clients {
		option.Check(slices.Index(clients, client) == i, "quorum.New: the same client appears twice")
		q.lockers = append(q.lockers, lock.New(client, namespace, opts...))
	}
	q.retry = q.lockers[0].Retry()
	return q
}

// size returns the number of masters in a majority.
func (q *Quorum) size() int { return len(q.lockers)/2 + 1 }

// TryAcquire takes key if a majority of the masters grants it, in one round trip. ok is false, without an error, if
// another caller holds it. [lock.ErrSettled] and [lock.ErrForeign] mean that the key holds a value, or something
// foreign, on a majority. Any other error means that no majority answered within the time for one operation
// ([lock.WithOpTimeout]), that ctx is done, or that the Quorum is closed ([lock.ErrClosed]).
func (q *Quorum) TryAcquire(ctx context.Context, key string) (lease *Lease, ok bool, err error) {
	if ctx.Err() != nil {
		return nil, false, fmt.Errorf("quorum: acquire: %w", context.Cause(ctx))
	}
	l := newLease(ctx, q)
	answered := make(chan *claim, len(l.claims))
	for _, c := range l.claims {
		c.locker.Go(func(context.Context) {
			l.ask(c, key)
			answered <- c
		})
	}
	granted, err := q.isGranted(ctx, answered)
	if granted {
		l.begin()
		return l, true, nil
	}
	q.lockers[0].Go(func(context.Context) { _ = l.Release(ctx) }) // also what is granted later
	if err != nil {
		err = fmt.Errorf("quorum: acquire: %w", err)
	}
	return nil, false, err
}

// isGranted reports whether a majority has granted the claim. The error is ErrForeign or ErrSettled if a majority
// returned that. Any other error means that a majority failed, or that ctx is done.
//
// It returns as soon as the results so far decide. The last result always does: unless a majority failed, a majority has
// granted or denied the claim, and then either a majority has granted it or none can any more.
func (q *Quorum) isGranted(ctx context.Context, answered <-chan *claim) (bool, error) {
	size := q.size()
	var failed []error
	granted, denied := 0, 0
	foreign, settled := 0, 0 // reasons for denied
	for missing := len(q.lockers) - 1; ; missing-- {
		var c *claim
		select {
		case c = <-answered:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		switch {
		case c.lease != nil:
			granted++
		case errors.Is(c.err, lock.ErrForeign):
			denied++
			foreign++
		case errors.Is(c.err, lock.ErrSettled):
			denied++
			settled++
		case errors.Is(c.err, lock.ErrHeld):
			denied++
		default:
			failed = append(failed, c.err)
		}
		isKnown, canBeGranted := granted+denied >= size, granted+missing >= size
		switch {
		case granted == size:
			return true, nil
		case len(failed) == size:
			return false, noMajority(failed)
		case foreign == size:
			return false, lock.ErrForeign
		case settled == size:
			return false, lock.ErrSettled
		case isKnown && !canBeGranted:
			return false, nil
		}
	}
}

// noMajority returns the error of an operation that too many masters failed.
func noMajority(failed []error) error {
	return fmt.Errorf("no majority: %w", errors.Join(failed...))
}

// Acquire takes key, and waits while another caller holds it. It calls TryAcquire again at the pauses of [lock.WithRetry].
// Callers share nothing, and no message wakes them, because no single master could send one.
//
// The error is [lock.ErrHeld] when the budget of lock.WithRetry is spent, and when ctx is done and the last try found the
// key held (then it also wraps the cause of ctx). Acquire returns any other error of [Quorum.TryAcquire] at once.
func (q *Quorum) Acquire(ctx context.Context, key string) (*Lease, error) {
	bound := q.retry.Min
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
		case n == q.retry.Attempts:
			return nil, lock.ErrHeld
		}
		select {
		case <-time.After(rand.N(bound)):
		case <-ctx.Done():
			return nil, heldUntil(ctx)
		}
		bound = min(2*bound, q.retry.Max)
	}
}

// heldUntil returns the error of a wait that ended with its context while the key was held.
func heldUntil(ctx context.Context) error {
	return fmt.Errorf("%w: %w", lock.ErrHeld, context.Cause(ctx))
}

// Close ends the background work: renewals, and the retries of releases. It waits for what is in flight. If ctx is done
// first, its error wraps the cause of ctx. A closed Quorum takes no key ([lock.ErrClosed]). Its leases are not renewed
// and run out, but can still be released. With [lock.WithReleaseOnClose] they are released, and lost. See
// [lock.Locker.Close].
func (q *Quorum) Close(ctx context.Context) error {
	errs := make([]error, len(q.lockers))
	var all sync.WaitGroup
	for i, locker := range q.lockers {
		all.Go(func() { errs[i] = locker.Close(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
