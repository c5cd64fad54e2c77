package system_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

var killSeed = flag.Uint64("kill.seed", 0, "seed of TestKilledUnderLoad; 0 for a random one")

// Two instances serve payments under load. The test repeatedly kills one and replaces it. In seven of eight kills a
// handler has begun and waits for its go-ahead, so the process dies inside the handler.
//
// By default there are 10 kills instead of 100: see redistest.Rounds.
//
// fault: process killed -9 under load, 100 times, at least 80 of them inside a handler
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, atMostOnce := range []bool{false, true} {
		t.Run(fmt.Sprintf("WithAtMostOnce=%t", atMostOnce), func(t *testing.T) {
			t.Parallel()
			k := newKilling(t, atMostOnce)
			k.load()
			k.checkOrders()
			k.checkReplays()
			k.end()

			f := k.counts
			t.Logf("%d kills, %d of them inside a handler", f.kills, f.inside)
			t.Logf("%d orders, %d runs, %d of them not the first of their order; %d unknown outcomes",
				len(k.orders), f.runs, f.again, f.unknown)
			t.Logf("%d requests: %d connections broke, %d were in flight; %d replays, %d of them afterwards",
				f.asked, f.broken, f.inFlight, f.replays, f.after)
			if inside := k.kills * 8 / 10; f.kills != k.kills || f.inside < inside || f.after < k.replaysAfter() {
				t.Errorf("want %d kills, at least %d inside, and at least %d replays afterwards", k.kills, inside, k.replaysAfter())
			}
			if f.broken == 0 || f.inFlight == 0 || f.unknown == 0 && atMostOnce || f.again == 0 && !atMostOnce {
				t.Error("want broken connections, duplicates in flight, and unknown outcomes or second runs")
			}
		})
	}
}

// killing is a service whose instances are killed, with its customers and all that they know.
type killing struct {
	t          *testing.T
	atMostOnce bool
	seed       uint64
	kills      int // number of kills in the test
	server     *redistest.Server
	book       *redis.Client // of the ledger
	http       *http.Client

	// Used only by the goroutine that reads the ledger.
	rng *rand.Rand
	all []*instance // by name, which is a number

	mu      sync.Mutex
	up      []*instance // instances that serve and are not doomed
	orders  []*order    // by key, which is a number
	open    []*order    // not final
	closing bool        // no new orders and no more kills
	counts  killCounts
}

// instance is a server in a separate process.
type instance struct {
	name      string
	process   *redistest.Process
	url       string
	killAtRun int  // it is killed at this run or a later one
	runs      int  // runs that it has begun
	doomed    bool // it is about to be killed or dead; guarded by killing.mu
	dead      bool // the ledger has its kill: all later entries were written after it was doomed
}

type killCounts struct {
	kills, inside           int
	runs, again             int // runs of handlers; again: not the first run of the order
	unknown                 int // orders
	asked, broken, inFlight int
	replays, after          int // after: since the last kill
}

func newKilling(t *testing.T, atMostOnce bool) *killing {
	t.Helper()
	seed := cmp.Or(*killSeed, rand.Uint64N(1e12)+1)
	t.Logf("-kill.seed=%d", seed)
	server := redistest.Start(t)
	book := openLedger(server.Addr())
	t.Cleanup(func() { _ = book.Close() })
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &killing{
		t: t, atMostOnce: atMostOnce, seed: seed, kills: redistest.Rounds(10, 100), rng: rand.New(rand.NewPCG(seed, 0)), server: server, book: book,
		http: &http.Client{Transport: transport, Timeout: 2 * patience},
	}
}

// replaysAfter returns the least number of replays that the test needs after the last kill.
func (k *killing) replaysAfter() int { return 5 * k.kills }

// load runs the customers and kills instances. It returns when every order is final.
func (k *killing) load() {
	for range 2 {
		k.start()
	}
	k.awaitBoth()
	const customers = 12
	ctx, cancel := context.WithCancel(k.t.Context())
	var busy sync.WaitGroup
	for i := range customers {
		rng := rand.New(rand.NewPCG(k.seed, uint64(i)+1))
		busy.Go(func() { k.customer(ctx, rng) })
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		busy.Wait()
		k.write(ledger, "quiet")
	}()
	defer func() { cancel(); <-gone }()
	for k.read() {
	}
	if k.t.Failed() { // then the customers have stopped early
		k.t.FailNow()
	}
	k.awaitBoth()
}

func (k *killing) awaitBoth() {
	for len(k.up) < 2 {
		k.read()
	}
}

// start starts another instance. An "up" entry of the ledger means that it serves.
func (k *killing) start() {
	name := strconv.Itoa(len(k.all))
	k.all = append(k.all, &instance{
		name:      name,
		process:   redistest.Run(k.t, "payments-server", k.server.Addr(), name, strconv.FormatBool(k.atMostOnce)),
		killAtRun: 1 + k.rng.IntN(20),
	})
}

// write appends to a list. It may be called from any goroutine.
func (k *killing) write(list, entry string) {
	if err := k.book.RPush(context.Background(), list, entry).Err(); err != nil {
		k.t.Errorf("writing %s: %v", entry, err)
	}
}

// read waits for the next entry of the ledger and handles it. It returns false at "quiet".
func (k *killing) read() (more bool) {
	k.t.Helper()
	entry, err := k.book.BLPop(k.t.Context(), patience, ledger).Result()
	if err != nil {
		k.t.Fatalf("no entry in the ledger: %v", err)
	}
	e := strings.Fields(entry[1])
	if e[0] == "quiet" {
		return false
	}
	v := k.all[number(e[1])]
	switch e[0] {
	case "up":
		k.mu.Lock()
		defer k.mu.Unlock()
		v.url = e[2]
		k.up = append(k.up, v)
	case "kill":
		v.dead = true
	case "run":
		k.run(v, number(e[2]), e[3])
	}
	return true
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// run gives a handler its go-ahead, or kills its instance, or both.
func (k *killing) run(v *instance, key int, nonce string) {
	r := &run{nonce: nonce, at: v}
	kill := k.recordRun(key, r)
	if !r.withheld {
		k.write(goAhead(nonce), "go on")
	}
	if !kill {
		return
	}
	if !r.withheld { // to kill it after the handler: in Settle, or before the response
		time.Sleep(time.Duration(k.rng.IntN(2000)) * time.Microsecond)
	}
	k.write(ledger, "kill "+v.name)
	v.process.Kill(k.t)
	k.start()
}

// recordRun records a run, and decides whether to kill the instance at it.
func (k *killing) recordRun(key int, r *run) (kill bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.orders[key]
	for _, earlier := range o.runs {
		if !earlier.at.dead {
			k.t.Errorf("order %d runs a second time, and the instance of the first run is alive", o.key)
		}
	}
	if len(o.runs) > 0 {
		k.counts.again++
		if k.atMostOnce {
			k.t.Errorf("order %d runs a second time", o.key)
		}
		k.checkAfterLease(o, "a second run")
	}
	k.counts.runs++
	o.runs = append(o.runs, r)

	r.at.runs++
	kill = !k.closing && !r.at.doomed && r.at.runs >= r.at.killAtRun && len(k.up) == 2
	if kill {
		r.at.doomed = true
		k.up = slices.DeleteFunc(k.up, func(v *instance) bool { return v == r.at })
		r.withheld = k.counts.kills%8 != 7
		if k.counts.kills++; r.withheld {
			k.counts.inside++
		}
		k.closing = k.counts.kills == k.kills
	} else {
		r.withheld = r.at.doomed
	}
	return kill
}

// checkAfterLease checks that the lease of an order's first claim has expired. The caller holds mu.
func (k *killing) checkAfterLease(o *order, what string) {
	if since := time.Since(o.placed); since < killLease-10*time.Millisecond {
		k.t.Errorf("order %d: %s %v after it was placed, which is before the lease expired", o.key, what, since)
	}
}

// checkOrders checks that each receipt comes from the last run of its order.
func (k *killing) checkOrders() {
	for _, o := range k.orders {
		if o.unknown {
			continue
		}
		if o.nonce != o.runs[len(o.runs)-1].nonce {
			k.t.Errorf("order %d ran again after it was answered with %s: %s", o.key, o.receipt, o.runs)
		}
	}
}

// checkReplays repeats all orders at both instances until there are enough replays.
func (k *killing) checkReplays() {
	before := k.counts.replays
	for k.counts.after < k.replaysAfter() && !k.t.Failed() {
		var askers sync.WaitGroup
		for _, v := range k.up {
			for half := range 2 {
				askers.Go(func() {
					for i := half; i < len(k.orders); i += 2 {
						k.ask(k.t.Context(), k.orders[i], v)
					}
				})
			}
		}
		askers.Wait()
		k.counts.after = k.counts.replays - before
	}
}

// end stops the remaining instances and checks what is left in Redis.
func (k *killing) end() {
	k.http.CloseIdleConnections()
	for _, v := range k.up {
		if err := v.process.Wait(k.t); err != nil {
			k.t.Error(err)
		}
	}
	if entries, err := k.book.LRange(context.Background(), ledger, 0, -1).Result(); err != nil || len(entries) > 0 {
		k.t.Errorf("entries left in the ledger: %q, %v", entries, err)
	}
	if got := len(k.server.Keys(k.t)); got != len(k.orders) {
		k.t.Errorf("keys in Redis: got %d, want one for each of %d orders", got, len(k.orders))
	}
}
