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
// claim. Extend and Release make majority the lease.Backend of a Quorum's leases. No mutex is held here: each call
// counts the results that it receives from a channel.
type majority struct {
	common *common
	all    []*store.Store
}

// size returns how many masters are a majority.
func (m *majority) size() int { return len(m.all)/2 + 1 }

// onEach calls do for every master at the same time, and returns a channel of the results. Once decided is closed, it
// calls afterDecision for each result, in the background.
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
// It sends the claim to slow masters even when ctx is done, because every master that has the claim makes the lease
// safer. A claim that a master has, or may have, is then released there, unless the lease was granted and is not over.
func (m *majority) claim(ctx context.Context, key store.Key) (*Lease, error) {
	id, ttl := lease.ID{Key: key, Token: store.NewToken()}, m.common.options.ttl
	start, detached, decided := time.Now(), background.WithoutEnd(ctx), make(chan struct{})
	var granted *Lease // written before decided is closed, and read only after that
	releaseUnneeded := func(s *store.Store, a store.Attempt) {
		needed := granted != nil && !granted.core.IsOver()
		if a.MayExist && !needed {
			m.releaseOn(s, id, start.Add(ttl))
		}
	}
	results := onEach(m, func(s *store.Store) store.Attempt {
		return s.TryClaim(detached, key, id.Token, start, func(late store.Attempt) {
			<-decided
			releaseUnneeded(s, late)
		})
	}, decided, releaseUnneeded)

	ok, err := m.isGranted(ctx, results)
	if ok {
		if time.Now().Before(start.Add(lease.Validity(ttl))) {
			granted = newLease(ctx, m.common, m, id, 0, start)
		} else {
			err = fmt.Errorf("granted too late: %w", context.DeadlineExceeded)
		}
	}
	close(decided)
	if err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	return granted, nil
}

// isGranted reports whether a majority has granted the claim. The error is ErrForeign or ErrSettled if a majority holds
// that. Any other error means that a majority failed, or that ctx is done.
//
// It returns as soon as one of the cases below has a majority. With the last result one has: unless a majority failed,
// a majority granted or denied the claim.
func (m *majority) isGranted(ctx context.Context, results <-chan store.Attempt) (bool, error) {
	size := m.size()
	granted, denied, foreign, settled, failed := 0, 0, 0, 0, []error(nil)
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
		answered, stillPossible := granted+denied >= size, granted+missing >= size
		switch {
		case granted == size:
			return true, nil
		case len(failed) == size:
			return false, noMajority(failed)
		case foreign == size:
			return false, ErrForeign
		case settled == size:
			return false, ErrSettled
		case answered && !stillPossible:
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

// Release releases the claim on every master, and returns as soon as a majority agrees. On masters that failed, it is
// then retried until the claim has expired there. If no majority agrees, the caller calls Release again.
func (m *majority) Release(ctx context.Context, id lease.ID, expiry time.Time) (all store.Outcome) {
	decided := make(chan struct{})
	defer close(decided)
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

// agree returns one Outcome for all masters: Ours if a majority returned a Holder that is good, Another if a majority
// returned any other, and an error if a majority failed, all have answered without a majority, or ctx is done.
func (m *majority) agree(
	ctx context.Context, results <-chan store.Outcome, good func(store.Holder) bool,
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
		case o.Err == nil && good(o.Holder):
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
