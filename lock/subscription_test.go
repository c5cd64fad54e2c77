package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// quick makes a Locker look by itself, often.
var quick = lock.WithRetry(lock.Retry{Min: time.Millisecond, Max: 5 * time.Millisecond})

// The same if the server refuses to subscribe and to publish. It gets few SUBSCRIBEs.
func TestSubscriptionIsForbidden(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	srv.Since(t, "6.2", "an ACL of channels")
	permit(t, srv, "resetchannels")
	p := redistest.NewProxy(t, srv.Addr())
	holder, locker := newLocker(t, srv.Client(t)), newLocker(t, p.Client(t), quick)
	lease := acquire(t, holder, "k")
	refused := p.HoldReply(redistest.Named("SUBSCRIBE"))
	waits, takes := waitFor(t.Context(), locker, "k"), acquireFor(t.Context(), locker, "k")
	refused.Wait(t)
	refused.Lift()
	p.Reset()
	start := time.Now()
	eventually(t, "polls by the timer", func() bool { return len(p.Commands()) > 20 })
	release(t, lease)
	if takes.end(t); takes.err != nil {
		t.Fatalf("Acquire: %v", takes.err)
	}
	if err := takes.claim.Lease.Settle(t.Context(), []byte("v"), time.Hour); err != nil {
		t.Errorf("Settle: %v", err)
	}
	if waits.end(t); waits.err != nil || waits.claim.State != lock.Settled && waits.claim.State != lock.Free {
		t.Errorf("Wait: %v, %v", waits.claim.State, waits.err)
	}
	subscribes := 0
	for _, name := range p.Commands() {
		if name == "SUBSCRIBE" {
			subscribes++
		}
	}
	if most := 2 + int(time.Since(start)/(500*time.Millisecond)); subscribes > most { // one in 1.5 s on average
		t.Errorf("%d SUBSCRIBEs, want at most %d", subscribes, most)
	}
	closeWithin(t, locker)
}

// A subscription that the server refuses for a time is made when the server allows it. The waiter does not poll: only
// the message can wake it.
//
// fault: SUBSCRIBE refused for a time (ACL being changed, Redis 8.6 full)
func TestSubscriptionIsRefusedForATime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		since         string
		refuse, allow func(t *testing.T, srv *redistest.Server)
	}{
		"by an ACL": {
			since:  "6.2",
			refuse: func(t *testing.T, srv *redistest.Server) { permit(t, srv, "resetchannels") },
			allow:  func(t *testing.T, srv *redistest.Server) { permit(t, srv, "allchannels") },
		},
		"by a full server": {
			since:  "8.6",
			refuse: func(t *testing.T, srv *redistest.Server) { fill(t, srv.Client(t)) },
			allow: func(t *testing.T, srv *redistest.Server) {
				if err := srv.Client(t).ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
					t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			srv.Since(t, test.since, "a SUBSCRIBE that is refused")
			p := redistest.NewProxy(t, srv.Addr())
			holder, locker := newLocker(t, srv.Client(t)), newLocker(t, p.Client(t), byMessage)
			lease := acquire(t, holder, "k")
			refused := p.HoldReply(redistest.Named("SUBSCRIBE"))
			test.refuse(t, srv)
			waits := waitFor(t.Context(), locker, "k")
			refused.Wait(t)
			test.allow(t, srv)
			refused.Lift()
			awaitSubscribers(t, srv, locker.StorageKey("k"), 1)
			release(t, lease)
			if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
				t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
			}
			closeWithin(t, locker)
		})
	}
}

// A client with a pool of one connection has another one for pub/sub, which is not part of the pool.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		one := func(o *redis.Options) { o.PoolSize, o.MaxActiveConns = 1, 1 }
		holder, locker := newLocker(t, b.Client(t, one)), newLocker(t, b.Client(t, one), byMessage)
		lease := acquire(t, holder, "k")
		waits, takes := waitFor(t.Context(), locker, "k"), acquireFor(t.Context(), locker, "k")
		awaitMark(t, b, locker.StorageKey("k"))
		release(t, lease)
		if takes.end(t); takes.err != nil {
			t.Fatalf("Acquire: %v", takes.err)
		}
		release(t, takes.claim.Lease)
		if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
			t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
		}
	})
}
