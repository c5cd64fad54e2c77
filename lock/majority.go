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
// claim; Extend and Release make majority the lease.Backend of a Quorum's leases. It holds no lock: each call counts
// the results that it receives from a channel.
type majority struct {
	common *common
	all    []*store.Store
}

// size returns how many masters are a majority.
func (m *majority) size() int { return len(m.all)/2 + 1 }

// onEach calls do for every master at the same time, and returns a channel of the results. When decided is closed, it
// calls after for each result, in the background.
func onEach[T any](
	m *majority, do func(s *store.Store) T, decided <-chan struct{}, after func(s *store.Store, result T),
) <-chan T {
	results := make(chan T, len(m.all))
	for _, s := range m.all {
		m.common.group.Go(func() {
			result := do(s)
			results <- result
			<-decided
			after(s, result)
		})
	}
	return results
}

// claim returns a lease if a majority has granted the claim, and nil without an error if somebody else holds the key.
// It sends the claim to slow masters even when ctx is done, because every master that has the claim makes the lease
// safer. A master whose result comes after the decision keeps its claim if the lease was granted, and otherwise
// releases it.
func (m *majority) claim(ctx context.Context, key store.Key) (*Lease, error) {
	var granted *Lease // set before decided is closed, and read only after that
	ttl, token := m.common.options.ttl, store.NewToken()
	start, detached, decided := time.Now(), background.WithoutEnd(ctx), make(chan struct{})
	release := func(s *store.Store, a store.Attempt) {
		if a.MayExist && (granted == nil || granted.core.IsOver()) {
			m.releaseOn(s, lease.ID{Key: key, Token: token}, start.Add(ttl))
		}
	}
	results := onEach(m, func(s *store.Store) store.Attempt {
		return s.TryClaim(detached, key, token, start, func(a store.Attempt) {
			<-decided
			release(s, a)
		})
	}, decided, release)

	ok, err := m.isGranted(ctx, results)
	if ok && !time.Now().Before(start.Add(lease.Validity(ttl))) {
		err = fmt.Errorf("granted too late: %w", context.DeadlineExceeded)
	} else if ok {
		granted = newLease(ctx, m.common, m, lease.ID{Key: key, Token: token}, 0, start)
	}
	close(decided)
	if err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	return granted, nil
}

// isGranted reports whether a majority has granted the claim. It returns as soon as that is decided, with the last result
// at the latest: one of the cases then has a majority. The error is ErrForeign or ErrSettled if a majority holds that, and
// otherwise means that a majority failed or ctx is done.
func (m *majority) isGranted(ctx context.Context, results <-chan store.Attempt) (bool, error) {
	granted, denied, foreign, settled, failed := 0, 0, 0, 0, []error(nil)
	for rest := len(m.all) - 1; ; rest-- {
		var a store.Attempt
		select {
		case a = <-results:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		switch {
		case a.Err != nil && !errors.Is(a.Err, ErrForeign):
			failed = append(failed, a.Err)
		case a.Err != nil:
			denied++
			foreign++
		case a.State == store.Granted:
			granted++
		case a.State == store.Settled:
			denied++
			settled++
		default:
			denied++
		}
		switch size := m.size(); {
		case granted == size:
			return true, nil
		case len(failed) == size:
			return false, fmt.Errorf("no majority: %w", errors.Join(failed...))
		case foreign == size:
			return false, ErrForeign
		case settled == size:
			return false, ErrSettled
		case granted+denied >= size && granted+rest < size:
			return false, nil
		}
	}
}

// Extend extends the claim on every master. It returns as soon as a majority agrees, or when ctx is done. The other
// commands go on even then, so that slow masters keep the claim too.
func (m *majority) Extend(ctx context.Context, id lease.ID, d time.Duration) store.Outcome {
	decided := make(chan struct{})
	defer close(decided)
	results := onEach(m, func(s *store.Store) store.Outcome {
		return s.Extend(background.WithoutEnd(ctx), id.Key, id.Token, d)
	}, decided, func(*store.Store, store.Outcome) {})
	return m.agree(ctx, results, func(h store.Holder) bool { return h == store.Ours })
}

// Release releases the claim on every master, and returns as soon as a majority agrees. If it does, the release on a
// master that failed is retried until the claim has expired there. If not, the caller calls Release again.
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

// releaseOn releases the claim on one master, and retries until the claim has expired there.
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
// returned any other, and an error if neither is possible any more or ctx is done.
func (m *majority) agree(ctx context.Context, results <-chan store.Outcome, good func(store.Holder) bool) store.Outcome {
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
		switch size := m.size(); {
		case yes == size:
			return store.Outcome{Holder: store.Ours, Unsure: unsure}
		case no == size:
			return store.Outcome{Holder: store.Another, Unsure: unsure}
		case len(failed) == size:
			return store.Outcome{Unsure: unsure, Err: fmt.Errorf("no majority: %w", errors.Join(failed...))}
		}
	}
	return store.Outcome{Unsure: unsure, Err: fmt.Errorf("no majority: %w", errors.Join(failed...))}
}
