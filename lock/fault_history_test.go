package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// Several clients, each behind a proxy of its own that does harm at random, work on the same keys. What they were told
// must be linearizable, and nothing may be left.

const (
	histTTL       = 300 * time.Millisecond
	histOpTimeout = 150 * time.Millisecond
	histClients   = 4
)

// fault: reply to the claim dropped
// fault: reply to Release dropped
// fault: reply to Settle dropped
// fault: claim arrives after the caller gave up
func TestHistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]lock.Option{
		"by SET":        nil,
		"by script":     {lock.WithFencing()},
		"fixed leases":  {lock.WithoutRenewal()},
		"a slow caller": {lock.WithOpTimeout(2 * histTTL)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, of := histJudge(func() []porcupine.Operation {
				h := newHistory(t)
				h.patient = name == "a slow caller"
				h.play(append([]lock.Option{lock.WithTTL(histTTL), lock.WithOpTimeout(histOpTimeout)}, opts...))
				h.leaveNothing()
				return h.ops
			})
			if result != porcupine.Ok {
				t.Errorf("%s:\n%s", result, histText(of))
			}
		})
	}
}

// history is what several clients have done and been told.
type history struct {
	t      *testing.T
	server *redistest.Server
	rng    *rand.Rand
	start  time.Time
	steps  int // of each client

	patient bool // its clients wait for an answer for longer than a lease lasts

	mu     sync.Mutex
	claims int
	ops    []porcupine.Operation
}

// newHistory begins one. Each client draws from the seed what it does and which harm is done to it.
func newHistory(t *testing.T) *history {
	t.Helper()
	return &history{
		t: t, server: redistest.Start(t), rng: rand.New(rand.NewPCG(faultSeed(t), 0)), start: time.Now(),
		steps: redistest.Rounds(15, 40),
	}
}

func faultSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *propSeed
	if seed == 0 {
		seed = rand.Uint64N(1e12) + 1
	}
	t.Logf("-lock.seed=%d", seed)
	return seed
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) newClaim() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims++
	return h.claims
}

func (h *history) add(op porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// play lets the clients work, and returns when whatever they have begun is over.
func (h *history) play(opts []lock.Option) {
	h.t.Helper()
	var all sync.WaitGroup
	for id := range histClients {
		c := &histClient{history: h, id: id, proxy: redistest.NewProxy(h.t, h.server.Addr())}
		c.rng = rand.New(rand.NewPCG(h.rng.Uint64(), 0))
		var clientOpts []func(*redis.Options)
		if c.rng.IntN(2) == 0 {
			clientOpts = append(clientOpts, redistest.OneTry)
		}
		c.locker = newLocker(h.t, c.proxy.Client(h.t, clientOpts...), opts...)
		all.Go(c.work)
	}
	all.Wait()
}

// leaveNothing checks that only values are left one lease later, and asks each key once more, for the history.
func (h *history) leaveNothing() {
	time.Sleep(histTTL + 100*time.Millisecond)
	for _, key := range h.server.Keys(h.t) {
		if value, _ := h.server.Raw(h.t, key); !strings.HasPrefix(value, "OGv") && !strings.HasSuffix(key, "fence") {
			h.t.Errorf("one lease after the end %s still holds %q", key, value)
		}
	}
	reader := &histClient{history: h, id: histClients, locker: newLocker(h.t, h.server.Client(h.t))}
	keys := map[string]bool{}
	for _, op := range h.ops {
		keys[op.Input.(histCall).key] = true
	}
	for key := range keys {
		if grant := reader.claim(key); grant != nil {
			reader.end(histRelease, grant, grant.Release)
		}
	}
}

type histClient struct {
	*history
	id     int
	proxy  *redistest.Proxy
	locker *lock.Locker
	rng    *rand.Rand
	key    int // that it works on: the next one once this is settled
	late   sync.WaitGroup
}

// histGrant is a claim that was granted.
type histGrant struct {
	*lock.Lease
	key    string
	number int
}

func (c *histClient) work() {
	var grants []*histGrant
	for range c.steps {
		lift := c.harm()
		grant := c.claim(strconv.Itoa(c.key))
		lift()
		if grant != nil {
			grants = append(grants, grant)
			c.use(grant)
		} else {
			c.pause(histTTL / 5)
		}
	}
	c.late.Wait()
	c.close()
	for _, g := range grants {
		<-g.Context().Done()
		until := int64(g.Until().Sub(c.start))
		c.add(histOp(c.id, until, until, histCall{histExpire, g.key, g.number}, histAnswer{what: histUnknown}))
	}
}

// close closes the Locker. The last try of a pending Settle may fail as the others did: to the history it is a Settle that
// got no reply.
func (c *histClient) close() {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	if err := c.locker.Close(ctx); err != nil && !errors.Is(err, lock.ErrGivenUp) {
		c.t.Errorf("Close: %v", err)
	}
}

func (c *histClient) claim(key string) *histGrant {
	number := c.newClaim()
	from := c.now()
	met, err := c.locker.Claim(context.Background(), key, []byte(strconv.Itoa(number)), 0)
	to := c.now()
	answer := histAnswer{what: histUnknown}
	switch {
	case err != nil:
		c.add(histOp(c.id, from, to, histCall{histExpire, key, number}, answer))
	case met.State == lock.Granted:
		answer.what, answer.fence = histOK, met.Lease.Fence()
	case met.State == lock.Held:
		answer.what = histHeld
	case met.State == lock.Settled:
		answer.what = histSettled
		c.key++
	}
	if c.patient && err == nil && answer.what != histOK {
		// An earlier try may have stood, and have run out, before this answer came. So the answer is that of another
		// claim, which took nothing, and of this one nobody knows.
		c.add(histOp(c.id, from, to, histCall{histClaim, key, number}, histAnswer{what: histUnknown}))
		c.add(histOp(c.id, from, to, histCall{histExpire, key, number}, histAnswer{what: histUnknown}))
		number = c.newClaim()
	}
	answer.claim, _ = strconv.Atoi(string(met.Note) + string(met.Value))
	c.add(histOp(c.id, from, to, histCall{histClaim, key, number}, answer))
	if answer.what != histOK {
		return nil
	}
	return &histGrant{met.Lease, key, number}
}

// use has a lease for a while, sometimes for longer than it lasts by itself, and ends it in some way.
func (c *histClient) use(g *histGrant) {
	if c.rng.IntN(5) == 0 {
		c.pause(2 * histTTL)
	} else {
		c.pause(10 * time.Millisecond)
	}
	switch n := c.rng.IntN(20); {
	case n == 0:
		g.Abandon()
	case n < 4:
		c.end(histSettle, g, func(ctx context.Context) error {
			return g.Settle(ctx, []byte(strconv.Itoa(g.number)), time.Hour)
		})
	default:
		c.end(histRelease, g, g.Release)
	}
}

func (c *histClient) end(kind histKind, g *histGrant, end func(context.Context) error) {
	defer c.harm()()
	from := c.now()
	err := end(context.Background())
	to := c.now()
	answer := histAnswer{what: histOK}
	switch {
	case errors.Is(err, lock.ErrLost):
		answer.what = histLost
	case err != nil:
		answer.what = histUnknown
	}
	c.add(histOp(c.id, from, to, histCall{kind, g.key, g.number}, answer))
}

// harm brings a fault about, or none, at the next command: our own, or one of the background work.
func (c *histClient) harm() (lift func()) {
	if c.proxy == nil {
		return func() {}
	}
	next := redistest.Nth(1, redistest.Any())
	switch c.rng.IntN(12) {
	case 0, 1:
		return c.proxy.DropReply(next).Lift
	case 2:
		return c.proxy.CutBefore(next).Lift
	case 3:
		return c.later(c.proxy.HoldRequest(next).Lift)
	case 4:
		return c.later(c.proxy.HoldReply(next).Lift)
	case 5:
		swallowed := c.proxy.SwallowReply(next)
		return func() {
			swallowed.Lift()
			c.proxy.Heal()
		}
	case 6:
		return c.later(c.proxy.Cut)
	}
	return func() {}
}

// later does something in a while, which may be longer than the caller waits.
func (c *histClient) later(do func()) (lift func()) {
	d := c.draw(2 * histOpTimeout)
	c.late.Go(func() {
		time.Sleep(d)
		do()
	})
	return func() {}
}

func (c *histClient) draw(most time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(most)))
}

func (c *histClient) pause(most time.Duration) { time.Sleep(c.draw(most)) }
