package system_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

const (
	soakLease = time.Second
	soakLimit = 2 * time.Second
)

// soakTime is how long a soak lasts.
func soakTime() time.Duration {
	all := 2 * time.Minute
	if os.Getenv("CI") == "true" {
		all = 20 * time.Second
	}
	return redistest.Rounds(3*time.Second, all)
}

// Two processes take payments, each of which is asked for six times at once by customers who repeat a request until its
// answer is final. Every second one of the processes is killed and replaced. Redis forgets everything every 20 ms, with
// or without a database that restarts every second, or Redis is off from the beginning to the end. With InTx each key
// has exactly one effect and one body. With an effect elsewhere it never has two, and Sweep finds every run without an
// end.
//
// By default a soak lasts 3 s instead of two minutes and has 30 keys instead of 300: see redistest.Rounds.
//
// fault: journal: processes killed -9 under load, FLUSHALL every 20 ms
// fault: journal: database restarted every second under load
// fault: journal: Redis off from beginning to end
func TestSoak(t *testing.T) { // not parallel to other tests: it keeps the machine busy
	for _, kind := range dbtest.Servers {
		t.Run(string(kind), func(t *testing.T) { testSoak(t, kind) })
	}
}

func testSoak(t *testing.T, kind dbtest.Kind) {
	shared := dbtest.Own(t, kind).Server
	for _, trouble := range []struct {
		name      string
		restarts  bool // of the database
		redisAway bool
	}{
		{name: "Redis forgets"},
		{name: "database restarts", restarts: true},
		{name: "Redis off", redisAway: true},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			for _, shops := range []struct {
				name      string
				mode      journalMode
				elsewhere bool
				alone     bool
			}{
				{name: "transactional InTx", mode: transactional},
				{name: "intent InTx", mode: intent},
				{name: "intent, effect elsewhere", mode: intent, elsewhere: true},
				{name: "alone InTx", mode: intent, alone: true},
				{name: "alone, effect elsewhere", mode: intent, elsewhere: true, alone: true},
			} {
				if shops.alone && !trouble.restarts {
					continue // Redis makes no difference
				}
				t.Run(shops.name, func(t *testing.T) {
					t.Parallel()
					server := shared
					if trouble.restarts {
						server = dbtest.Own(t, kind).Server
					}
					k := newSoak(t, server, shops.mode, shops.elsewhere, trouble.redisAway)
					k.keys, k.lasts = redistest.Rounds(30, 300), soakTime()
					k.shop.Alone = shops.alone
					k.load(trouble.restarts)
					k.check()
				})
			}
		})
	}
}

// soak is a service whose instances are killed, with its customers and all that they know.
type soak struct {
	*scene
	t         *testing.T
	shop      shop
	elsewhere bool
	lasts     time.Duration // at least
	keys      int           // how many orders there are at least
	clicks    int           // how many requests at once ask for an order
	redisAway bool
	redisKept bool // Redis keeps its data: without a journal nothing else prevents a second effect
	server    *dbtest.Server
	customer  customer // without a URL

	mu        sync.Mutex
	urls      []string             // of the instances
	processes []*redistest.Process // same order; only the test's goroutine uses it
	orders    []*soakOrder         // by key, which is a number
	stop      bool                 // the soak has lasted long enough
	broken    int                  // answers
	kills     int
}

// soakOrder is what the customers know of a key. soak.mu guards all fields except key.
type soakOrder struct {
	key     string
	body    string // of the 201, empty before
	failure string // body of the 500 that is stored, empty before
	unknown bool   // a customer got outcome-unknown, which is final for an effect elsewhere
}

func newSoak(t *testing.T, server *dbtest.Server, mode journalMode, elsewhere, redisAway bool) *soak {
	t.Helper()
	k := &soak{scene: newScene(t, server), t: t, elsewhere: elsewhere, clicks: 6, redisAway: redisAway, server: server, customer: newCustomer(t, "")}
	k.shop = shop{Redis: k.redis.Addr(), Database: k.database.URL(), Kind: k.database.Kind, Journal: mode, Lease: soakLease, Limit: soakLimit}
	if elsewhere {
		k.shop.Provider = k.provider.url
	}
	if redisAway {
		k.redis.Kill(t)
	}
	return k
}

func (k *soak) redisForgets() bool { return !k.redisAway && !k.redisKept }

// load runs the customers, kills instances, and returns when every order is final.
func (k *soak) load(restarts bool) {
	k.t.Helper()
	for range 2 {
		k.processes = append(k.processes, start(k.t, k.shop))
	}
	for _, p := range k.processes {
		k.urls = append(k.urls, p.Line(k.t))
	}
	ctx, cancel := context.WithCancel(k.t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	if k.redisForgets() {
		background.Go(func() { k.flush(ctx) })
	}
	if k.shop.Journal == intent && !k.elsewhere {
		background.Go(func() { k.sweepFreely(ctx) })
	}

	const customers = 12
	var busy sync.WaitGroup
	for range customers {
		busy.Go(func() { k.buy(ctx) })
	}
	quiet := make(chan struct{})
	background.Go(func() {
		busy.Wait()
		close(quiet)
	})
	k.disturb(quiet, restarts)
}

// disturb kills an instance every second, and may restart the database, until the soak is over and quiet. How long that takes
// depends on the machine.
func (k *soak) disturb(quiet <-chan struct{}, restarts bool) {
	k.t.Helper()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for over := time.Now().Add(k.lasts); ; {
		k.mu.Lock()
		k.stop = time.Now().After(over)
		k.mu.Unlock()
		select {
		case <-second.C:
		case <-quiet:
			return
		}
		i, began := rand.N(len(k.processes)), time.Now()
		k.processes[i].Kill(k.t)
		k.kills++
		if restarts {
			end := k.server.Stop
			if k.kills%2 == 0 {
				end = k.server.Crash
			}
			if err := errors.Join(end(), k.server.Restart()); err != nil {
				k.t.Fatal(err)
			}
		}
		k.processes[i] = start(k.t, k.shop)
		url := k.processes[i].Line(k.t)
		k.mu.Lock()
		k.urls[i] = url
		k.mu.Unlock()
		second.Reset(max(time.Second, time.Since(began))) // or all might be down most of the time where a start takes long
	}
}

func (k *soak) flush(ctx context.Context) {
	client := redistest.NewClient(k.t, k.redis.Addr())
	for wait(ctx, 20*time.Millisecond) {
		if err := client.FlushAll(ctx).Err(); err != nil && ctx.Err() == nil {
			k.t.Errorf("FLUSHALL: %v", err)
		}
	}
}

// sweepFreely frees what is unfinished: with InTx there is no effect then. An error is one of the database, which may
// restart.
func (k *soak) sweepFreely(ctx context.Context) {
	journal := sqljournal.Intent(k.db, namespace, k.database.Kind.Options()...)
	for wait(ctx, 50*time.Millisecond) {
		_, _ = journal.Sweep(ctx, 0, soakLimit, func(ctx context.Context, u sqljournal.Unfinished) error { return u.Free(ctx, k.db) })
	}
}

// wait reports whether ctx has not ended when d is over.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
