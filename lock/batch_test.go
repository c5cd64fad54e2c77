package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// The bounds of batches, as internal/pipeline/pacer.go has them.
const (
	maxInFlight = 8 // commands that go alone, after which others wait
)

// unhurried lets a test hold batches for as long as it takes: after a tenth of the time for one operation they do not
// count any more. No claim is granted too late then, and no renewal is among the commands that a test counts.
var unhurried = []lock.Option{lock.WithOpTimeout(time.Hour), lock.WithTTL(2 * time.Hour)}

// names returns n keys that begin with prefix.
func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

// callers are goroutines that were started together.
type callers struct{ done []chan error }

// start calls do for each of n, one after the other when a command of the one before is queued or sent, or the call has
// returned. Nothing else may use the locker meanwhile. If a call is canceled meanwhile, start may be too early by one.
func start(t *testing.T, locker *lock.Locker, n int, do func(i int) error) *callers {
	t.Helper()
	c := &callers{}
	for i := range n {
		before, done := submitted(locker), make(chan error, 1)
		c.done = append(c.done, done)
		go func() { done <- do(i) }()
		for deadline := time.Now().Add(time.Minute); len(done) == 0 && submitted(locker) == before; {
			if time.Now().After(deadline) {
				t.Fatalf("call %d does not wait for an answer", i)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	return c
}

// submitted returns how many commands the locker has queued or sent, so far.
func submitted(locker *lock.Locker) uint64 {
	s := locker.Stats()
	return s.Commands + uint64(s.Queued)
}

// wait returns what the i-th call has.
func (c *callers) wait(t *testing.T, i int) error {
	t.Helper()
	select {
	case err := <-c.done[i]:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("call %d has not returned within a minute", i)
		return nil
	}
}

// leases are those that calls to TryAcquire have returned.
type leases struct {
	*callers
	of []*lock.Lease
}

// errHeld says that TryAcquire has returned false.
var errHeld = errors.New("held")

// tryAll takes keys in calls of their own.
func tryAll(t *testing.T, locker *lock.Locker, keys []string) *leases {
	t.Helper()
	l := &leases{of: make([]*lock.Lease, len(keys))}
	l.callers = start(t, locker, len(keys), func(i int) error {
		lease, ok, err := locker.TryAcquire(t.Context(), keys[i])
		if err == nil && !ok {
			err = errHeld
		}
		l.of[i] = lease
		return err
	})
	return l
}

// Commands that come while others are in flight are sent together. Each has its own reply, or its own failure.
//
// fault: a foreign value or type under the key
// fault: reply to the claim dropped
func TestBatch(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		const n, foreign, lost = 60, 25, 33
		locker := newLocker(t, p.Client(t, patient), unhurried...)
		acquire(t, locker, "connects")
		keys := names("k", n)
		if err := b.Client(t).HSet(t.Context(), locker.StorageKey(keys[foreign]), "f", "v").Err(); err != nil {
			t.Fatal(err)
		}
		held := p.HoldReply(redistest.Named("SET"))
		l := tryAll(t, locker, keys)
		p.Reset()
		drop := p.DropReply(redistest.Nth(1, func(c redistest.Command) bool {
			return c.Name == "SET" && string(c.Args[0]) == locker.StorageKey(keys[lost])
		}))
		held.Lift()
		for i := range keys {
			if err := l.wait(t, i); (err == nil) != (i != foreign) || i == foreign && !errors.Is(err, lock.ErrForeign) {
				t.Errorf("%s: %v", keys[i], err)
			}
		}
		if drop.Wait(t); p.RoundTrips() > n/3 {
			t.Errorf("%d claims in %d round trips", n, p.RoundTrips())
		}
		if _, ok, err := rival.TryAcquire(t.Context(), keys[lost]); ok || err != nil {
			t.Errorf("a rival: %v, %v, want false, nil", ok, err)
		}
		release(t, l.of[lost])
	})
}

// silence makes as many connections fall silent as there may be batches in flight, and returns when their callers have
// given up.
func silence(t *testing.T, p *redistest.Proxy, locker *lock.Locker, prefix string) (keys []string) {
	t.Helper()
	keys = names(prefix, maxInFlight)
	silent := p.SwallowReply(redistest.Named("SET"))
	l := tryAll(t, locker, keys)
	for range keys {
		silent.Wait(t)
	}
	silent.Lift()
	for i := range keys {
		if err := l.wait(t, i); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryAcquire: %v, want DeadlineExceeded", err)
		}
	}
	return keys
}

// Silent connections do not delay calls that come when their time is over, and the claims that were written to them are
// released over other connections.
//
// fault: a connection falls silent
func TestSilentBatches(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Second
	for name, opt := range map[string]func(*redis.Options){
		"default client":     func(*redis.Options) {},
		"client without end": func(o *redis.Options) { o.ReadTimeout = -1 },
		"pool of 20":         func(o *redis.Options) { o.ReadTimeout, o.PoolSize = -1, 20 },
		"heeds contexts":     honorsDeadlines,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				p := redistest.NewProxy(t, b.Addr())
				locker := newLocker(t, p.Client(t, opt), lock.WithOpTimeout(limit))
				load(t, newLocker(t, b.Client(t)))
				for round := range redistest.Rounds(1, 2) {
					keys := silence(t, p, locker, fmt.Sprint("silent ", round, " "))
					for _, key := range names(fmt.Sprint("k", round, " "), 20) {
						release(t, acquire(t, locker, key))
					}
					eventually(t, "what has arrived is released", func() bool {
						return !slices.ContainsFunc(keys, func(key string) bool {
							_, ok := b.Raw(t, locker.StorageKey(key))
							return ok
						})
					})
				}
				p.Heal()
				closeWithin(t, locker)
				wantNoClaims(t, b)
			})
		})
	}
}
