package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// majority acts on all masters of a Quorum at once, and decides by the results of a majority. Quorum.TryAcquire calls
// claim. Extend and Release make majority the lease.Backend of a Quorum's leases. There is no mutex: each call counts
// the results that it receives from a channel.
type majority struct {
	common *common
	all    []*store.Store
}

// size returns how many masters are a majority.
func (m *majority) size() int { return len(m.all)/2 + 1 }

// onEach calls do for every master at the same time, and returns a channel of the results. The caller closes decided
// when it has decided by them. After that, onEach calls afterDecision for each result, in the background.
func onEach[T any](
	m *majority, do func(s *store.Store) T, decided <-chan struct{}, afterDecision func(s *store.Store, result T),
) <-chan T {
	results := make(chan T, len(m.all))
	for _, s := range m.all {
		m.common.group.Go(func() {
			result := do(s)
			results <- result
			<-decided
			afterDecision(s, result)
		})
	}
	return results
}

// claim returns a lease if a majority has granted the claim, and nil without an error if somebody else holds the key.
func (m *majority) claim(ctx context.Context, key store.Key) (*Lease, error) {
	c := &quorumClaim{
		majority: m, ctx: background.WithoutEnd(ctx), id: lease.ID{Key: key, Token: store.NewToken()},
		start: time.Now(), decided: make(chan struct{}),
	}
	results := onEach(m, c.send, c.decided, c.releaseUnneeded)
	err := c.decide(ctx, results)
	close(c.decided)
	if err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	return c.lease, nil
}

// quorumClaim is one claim, with the same token on every master. Every master gets it, even a slow one after the caller
// has stopped waiting: each master that has the claim makes the lease safer. If after the decision no lease needs the
// claim, releaseUnneeded releases it on every master that may have it.
type quorumClaim struct {
	majority *majority
	ctx      context.Context // never done; carries the values of the caller's
	id       lease.ID
	start    time.Time
	decided  chan struct{} // closed when lease is final
	lease    *Lease        // nil if it was not granted; other goroutines read it once decided is closed
}

// send sends the claim to one master.
func (c *quorumClaim) send(s *store.Store) store.Attempt {
	return s.TryClaim(c.ctx, c.id.Key, c.id.Token, c.start, func(late store.Attempt) {
		<-c.decided
		c.releaseUnneeded(s, late)
	})
}

// decide sets lease if a majority has granted the claim, and the grant did not take so long that the lease would be
// over.
func (c *quorumClaim) decide(ctx context.Context, results <-chan store.Attempt) error {
	m := c.majority
	granted, err := m.isGranted(ctx, results)
	if !granted {
		return err
	}
	if c.lease = newLease(ctx, m.common, m, c.id, 0, c.start); c.lease == nil {
		return errGrantedTooLate
	}
	return nil
}

// releaseUnneeded releases the claim on one master, if it is or may be there, unless the lease was granted and its
// holder has not released it. It is called after the decision, for each result.
func (c *quorumClaim) releaseUnneeded(s *store.Store, a store.Attempt) {
	needed := c.lease != nil && !c.lease.core.IsReleasedOrSettled()
	if a.MayExist && !needed {
		c.majority.releaseOn(s, c.id, c.start.Add(c.majority.common.options.ttl))
	}
}

// isGranted reports whether a majority has granted the claim. The error is ErrForeign or ErrSettled if a majority holds
// that. Any other error means that a majority failed, or that ctx is done.
//
// It returns as soon as the results decide. At the latest the last one does: unless a majority failed, a majority has
// answered, and then either a majority has granted the claim or none can any more.
func (m *majority) isGranted(ctx context.Context, results <-chan store.Attempt) (bool, error) {
	size := m.size()
	var failed []error
	granted, denied := 0, 0
	foreign, settled := 0, 0 // reasons for denied
	for missing := len(m.all) - 1; ; missing-- {
		var a store.Attempt
		select {
		case a = <-results:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		switch {
		case errors.Is(a.Err, ErrForeign):
			denied++
			foreign++
		case a.Err != nil:
			failed = append(failed, a.Err)
		case a.State == store.Granted:
			granted++
		case a.State == store.Settled:
			denied++
			settled++
		default:
			denied++
		}
		answered, canBeGranted := granted+denied >= size, granted+missing >= size
		switch {
		case granted == size:
			return true, nil
		case len(failed) == size:
			return false, noMajority(failed)
		case foreign == size:
			return false, ErrForeign
		case settled == size:
			return false, ErrSettled
		case answered && !canBeGranted:
			return false, nil
		}
	}
}

// noMajority returns the error of an operation that too many masters failed.
func noMajority(failed []error) error {
	return fmt.Errorf("no majority: %w", errors.Join(failed...))
}

// Extend extends the claim on every master. It returns as soon as a majority agrees, or when ctx is done. The other
// commands go on after that, so that slow masters keep the claim too.
func (m *majority) Extend(ctx context.Context, id lease.ID, d time.Duration) store.Outcome {
	decided := make(chan struct{})
	defer close(decided)
	results := onEach(m, func(s *store.Store) store.Outcome {
		return s.Extend(background.WithoutEnd(ctx), id.Key, id.Token, d)
	}, decided, func(*store.Store, store.Outcome) {})
	return m.agree(ctx, results, func(h store.Holder) bool { return h == store.Ours })
}

// Release releases the claim on every master, and returns as soon as a majority agrees. Then the background retries on
// each master that failed, until the claim has expired there. If no majority agrees, nothing is retried here: the
// caller calls Release again.
func (m *majority) Release(ctx context.Context, id lease.ID, expiry time.Time) (all store.Outcome) {
	decided := make(chan struct{})
	defer close(decided) // all is set then, and may be read
	results := onEach(m, func(s *store.Store) store.Outcome {
		return s.Release(ctx, id.Key, id.Token)
	}, decided, func(s *store.Store, o store.Outcome) {
		if all.Err == nil && o.Err != nil {
			m.releaseOn(s, id, expiry)
		}
	})
	return m.agree(ctx, results, func(h store.Holder) bool { return h == store.Ours || h == store.Nobody })
}

// releaseOn releases the claim on one master. It retries until the claim has expired there.
func (m *majority) releaseOn(s *store.Store, id lease.ID, expiry time.Time) {
	group := m.common.group
	try := func() bool {
		o := s.Release(group.Base(), id.Key, id.Token)
		return o.Err == nil || o.Foreign
	}
	if !try() {
		background.Retry(group.Context(), expiry, try)
	}
}

// agree returns one Outcome for all masters: Ours if a majority returned a Holder that is as wanted, and Another if a
// majority returned any other. It returns an error if a majority failed, if all results have come and none of these has
// a majority, or if ctx is done.
func (m *majority) agree(
	ctx context.Context, results <-chan store.Outcome, isWanted func(store.Holder) bool,
) store.Outcome {
	size := m.size()
	yes, no, failed, unsure := 0, 0, []error(nil), false
	for range m.all {
		var o store.Outcome
		select {
		case o = <-results:
		case <-ctx.Done():
			return store.Outcome{Unsure: true, Err: context.Cause(ctx)}
		}
		unsure = unsure || o.Unsure
		switch {
		case o.Err != nil && !o.Foreign:
			failed = append(failed, o.Err)
		case o.Err == nil && isWanted(o.Holder):
			yes++
		default:
			no++
		}
		switch {
		case yes == size:
			return store.Outcome{Holder: store.Ours, Unsure: unsure}
		case no == size:
			return store.Outcome{Holder: store.Another, Unsure: unsure}
		case len(failed) == size:
			return store.Outcome{Unsure: unsure, Err: noMajority(failed)}
		}
	}
	return store.Outcome{Unsure: unsure, Err: noMajority(failed)}
}
