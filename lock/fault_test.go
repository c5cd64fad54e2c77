package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// clientsThat are the two kinds of clients for one server.
var clientsThat = map[string]func(*redis.Options){
	"may miss deadlines": func(*redis.Options) {},
	"honors deadlines":   honorsDeadlines,
}

func honorsDeadlines(o *redis.Options) { o.ContextTimeoutEnabled = true }

// onBoth runs test on both servers, with a faulty connection to a Locker and a good one to its rival, and that with
// either kind of client.
func onBoth(
	t *testing.T, test func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker), opts ...lock.Option,
) {
	for name, opt := range clientsThat {
		t.Run("client that "+name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				p := redistest.NewProxy(t, b.Addr())
				locker, rival := newLocker(t, p.Client(t, opt), opts...), newLocker(t, b.Client(t), opts...)
				load(t, rival)
				test(t, b, p, locker, rival)
			})
		})
	}
}

// load lets the server know the scripts, so that a test sees EVALSHA alone.
func load(t *testing.T, locker *lock.Locker) {
	t.Helper()
	lease := acquire(t, locker, "load")
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease = claimUnder(t, locker, "load", time.Minute)
	if _, ok, err := locker.TryAcquire(t.Context(), "load"); ok || err != nil { // by SET, and then by a script
		t.Fatal(ok, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled := acquire(t, locker, "load")
	if err := settled.Settle(t.Context(), nil, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := locker.Forget(t.Context(), locker.StorageKey("load"), "value-"+settled.Token()); err != nil {
		t.Fatal(err)
	}
}

var script = redistest.Named("EVALSHA")

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onBoth(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy, locker, _ *lock.Locker) {
		for range 2 { // the first time connects
			p.Reset()
			if err := acquire(t, locker, "k").Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.RoundTrips(); got != 2 {
			t.Errorf("acquire and release took %d round trips (%q), want 2", got, p.Commands())
		}
	})
}

// fault: claim arrives after the caller gave up
// fault: the caller's ctx cancelled before, during, after
func TestClaimArrivesAfterTheCallerGaveUp(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker, _ *lock.Locker) {
		held := p.HoldRequest(redistest.Named("SET"))
		ctx, cancel := context.WithCancel(t.Context())
		acquired := tryInBackground(ctx, locker)
		held.Wait(t)
		cancel()
		if err := <-acquired; !errors.Is(err, context.Canceled) {
			t.Errorf("TryAcquire: %v, want context.Canceled", err)
		}
		held.Lift()
		closeWithin(t, locker)
		if keys := b.Keys(t); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// tryInBackground calls TryAcquire for the key k. The channel gets its error.
func tryInBackground(ctx context.Context, locker *lock.Locker) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, _, err := locker.TryAcquire(ctx, "k")
		ended <- err
	}()
	return ended
}

// fault: redis-server SIGSTOP, longer
func TestSilentServer(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]func(*redis.Options){
		"default client":     func(*redis.Options) {},
		"client without end": func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = -1, 10 },
		"one try":            redistest.OneTry,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			locker := newLocker(t, srv.Client(t, opt), lock.WithOpTimeout(2*time.Second), lock.WithTTL(time.Minute))
			load(t, locker)
			released, settled := acquire(t, locker, "released"), acquire(t, locker, "settled")

			srv.Pause(t)
			for what, do := range map[string]func() error{
				"TryAcquire": func() error { _, _, err := locker.TryAcquire(t.Context(), "k"); return err },
				"Forget":     func() error { return locker.Forget(t.Context(), locker.StorageKey("k"), lockToken) },
				"Release":    func() error { return released.Release(t.Context()) },
				"Settle":     func() error { return settled.Settle(t.Context(), []byte("v"), time.Hour) },
			} {
				start := time.Now()
				if err := do(); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v, want DeadlineExceeded", what, err)
				}
				if took := time.Since(start); took > 10*time.Second { // 2 s, and a busy machine
					t.Errorf("%s took %v", what, took)
				}
			}
			srv.Resume(t)
			<-settled.Context().Done()
			claim, err := locker.Claim(t.Context(), "settled", nil, 0)
			if err != nil || string(claim.Value) != "v" {
				t.Errorf("after the silence the key holds %q, %v, want v", claim.Value, err)
			}
			closeWithin(t, locker)
		})
	}
}

// fault: redis-server kill -9, restarted empty
func TestServerRestartsEmpty(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locker, rival := newLocker(t, srv.Client(t), lock.WithTTL(3*time.Second)), newLocker(t, srv.Client(t))
	lands, refused := acquire(t, locker, "lands"), acquire(t, locker, "refused")
	srv.Kill(t)
	srv.Restart(t)

	acquire(t, rival, "refused")
	for _, lease := range []*lock.Lease{lands, refused} {
		<-lease.Context().Done()
		if got := context.Cause(lease.Context()); !errors.Is(got, lock.ErrLost) {
			t.Errorf("cause %v, want ErrLost", got)
		}
	}
	if err := lands.Settle(t.Context(), []byte("v"), time.Hour); err != nil {
		t.Errorf("Settle where nobody has claimed: %v", err)
	}
	if err := refused.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Settle over another's claim: %v, want ErrLost", err)
	}
}

func closeWithin(t *testing.T, locker *lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := locker.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// closeGivingUp closes a Locker that has n values which cannot be stored.
func closeGivingUp(t *testing.T, locker *lock.Locker, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	want := ""
	if n > 0 {
		want = fmt.Sprintf("%v: %d", lock.ErrGivenUp, n)
	}
	if err := locker.Close(ctx); err == nil && n > 0 || err != nil && err.Error() != want {
		t.Errorf("Close: %v, want %q", err, want)
	}
}
