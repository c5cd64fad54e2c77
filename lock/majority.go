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

// majority is the masters of a Quorum, asked together. It is the backend of a Quorum's leases.
type majority struct {
	core *core
	all  []*store.Store
}

func (m *majority) size() int { return len(m.all)/2 + 1 }

// poll asks every master at the same time and returns their answers as they come. Each is given to after as well, in the
// background, when decided has been closed.
func poll[T any](
	m *majority, ask func(s *store.Store) T, decided <-chan struct{}, after func(s *store.Store, answer T),
) <-chan T {
	answers := make(chan T, len(m.all))
	for _, s := range m.all {
		m.core.group.Go(func() {
			answer := ask(s)
			answers <- answer
			<-decided
			after(s, answer)
		})
	}
	return answers
}

// claim returns a lease if a majority has granted it, and nil without an error if somebody holds the key. That ctx ends
// does not keep the claim from the masters that are slow: the lease is to stand on all of them.
func (m *majority) claim(ctx context.Context, key store.Key) (*Lease, error) {
	var granted *Lease
	ttl, token := m.core.options.ttl, store.NewToken()
	start, values, decided := time.Now(), background.WithoutEnd(ctx), make(chan struct{})
	release := func(s *store.Store, a store.Attempt) {
		if a.Stands && (granted == nil || granted.core.IsOver()) {
			m.releaseOn(values, s, lease.ID{Key: key, Token: token}, start.Add(ttl))
		}
	}
	answers := poll(m, func(s *store.Store) store.Attempt {
		return s.TryClaim(values, key, token, start, func(a store.Attempt) {
			<-decided
			release(s, a)
		})
	}, decided, release)

	ok, err := m.isGranted(ctx, answers)
	if ok && !time.Now().Before(start.Add(lease.Validity(ttl))) {
		err = fmt.Errorf("granted too late: %w", context.DeadlineExceeded)
	} else if ok {
		granted = newLease(ctx, m.core, m, lease.ID{Key: key, Token: token}, 0, start)
	}
	close(decided)
	if err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	return granted, nil
}

// isGranted counts until a majority has granted the claim, or a majority has answered and the claim can have none any
// more. It is an error if no majority has answered, or if one holds what is no claim.
func (m *majority) isGranted(ctx context.Context, answers <-chan store.Attempt) (bool, error) {
	granted, denied, foreign, settled, failed := 0, 0, 0, 0, []error(nil)
	for rest := len(m.all) - 1; ; rest-- {
		var a store.Attempt
		select {
		case a = <-answers:
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

// Extend extends everywhere, and returns as soon as a majority has answered, or when ctx is done. The others are not left
// out then: one that is slow must not lose the claim.
func (m *majority) Extend(ctx context.Context, id lease.ID, d time.Duration) store.Outcome {
	decided := make(chan struct{})
	defer close(decided)
	answers := poll(m, func(s *store.Store) store.Outcome {
		return s.Extend(background.WithoutEnd(ctx), id.Key, id.Token, d)
	}, decided, func(*store.Store, store.Outcome) {})
	return m.agree(ctx, answers, func(h store.Holder) bool { return h == store.Ours })
}

// Release releases everywhere, and returns as soon as a majority has answered. A master that failed is then asked again,
// until the lease has run out there.
func (m *majority) Release(ctx context.Context, id lease.ID, expiry time.Time) (all store.Outcome) {
	decided := make(chan struct{})
	defer close(decided)
	answers := poll(m, func(s *store.Store) store.Outcome {
		return s.Release(ctx, id.Key, id.Token)
	}, decided, func(s *store.Store, o store.Outcome) {
		if all.Err == nil && o.Err != nil {
			m.releaseOn(ctx, s, id, expiry)
		}
	})
	return m.agree(ctx, answers, func(h store.Holder) bool { return h == store.Ours || h == store.Nobody })
}

// releaseOn releases on one master, and tries again until the claim has expired there.
func (m *majority) releaseOn(ctx context.Context, s *store.Store, id lease.ID, expiry time.Time) {
	try := func() bool {
		o := s.Release(ctx, id.Key, id.Token)
		return o.Err == nil || o.Foreign
	}
	if !try() {
		background.Retry(m.core.group.Context(), expiry, try)
	}
}

// agree returns one outcome for all masters: that the key holds the lease's claim if a majority says what is good, that it
// is another's if a majority says anything else, and an error if neither can be had any more, or when ctx is done.
func (m *majority) agree(ctx context.Context, answers <-chan store.Outcome, good func(store.Holder) bool) store.Outcome {
	yes, no, failed, unsure := 0, 0, []error(nil), false
	for range m.all {
		var o store.Outcome
		select {
		case o = <-answers:
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
		switch m.size() {
		case yes:
			return store.Outcome{Holder: store.Ours, Unsure: unsure}
		case no:
			return store.Outcome{Holder: store.Another, Unsure: unsure}
		case len(failed):
			return store.Outcome{Unsure: unsure, Err: fmt.Errorf("no majority: %w", errors.Join(failed...))}
		}
	}
	return store.Outcome{Unsure: unsure, Err: fmt.Errorf("no majority: %w", errors.Join(failed...))}
}
