package lock_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// Random histories of one process with three Lockers on three keys are played on a Redis and on the model in
// property_model_test.go. After every step both must agree.

var (
	propSeed  = flag.Uint64("lock.seed", 0, "seed of the first history of a property test; 0 takes one by chance")
	propSteps = flag.Int("lock.steps", 0, "how many steps a property test plays at the least; 0 takes 600, or 2000 with ONCEGUARD_LONG=1")
)

const propLength = 60 // steps of a history

// Only Redis's clock is moved, by minutes. Ours, and a real server's, run on by the seconds that the test takes.
//
// fault: SCRIPT FLUSH
// fault: FLUSHALL, DEL, eviction of the key
// fault: a foreign value or type under the key
func TestPropertyOfFixedLeases(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		client := b.Client(t)
		propSearch(t, func(g *propGame) {
			b.FlushAll(t)
			g.play(propSite{
				client:    client,
				options:   []lock.Option{lock.WithOpTimeout(30 * time.Second), lock.WithoutRenewal()},
				leases:    []time.Duration{time.Hour, 2 * time.Hour, 5 * time.Hour},
				unit:      time.Minute,
				margin:    time.Minute,
				tolerance: 30 * time.Second,
				pass:      func(d time.Duration) { b.Elapse(t, d) },
			})
		})
	})
}

// In a bubble both clocks are one, and stand still between the steps: bounds are exact. Whatever happens does so at a
// whole millisecond, for miniredis loses the rest of a TTL that a script reads and writes back.
func TestPropertyOfRenewedLeases(t *testing.T) {
	t.Parallel()
	propSearch(t, func(g *propGame) {
		synctest.Test(t, func(t *testing.T) {
			g.play(propSite{
				client:    newBubble(t).client,
				options:   []lock.Option{lock.WithOpTimeout(500 * time.Millisecond)},
				leases:    []time.Duration{3 * time.Second, 9 * time.Second, 21 * time.Second},
				unit:      40 * time.Millisecond,
				margin:    5 * time.Millisecond,
				tolerance: 2 * time.Millisecond,
				renewing:  true,
				pass:      func(d time.Duration) { time.Sleep(d); synctest.Wait() },
			})
		})
	})
}

// propSearch plays histories until they have enough steps, or one fails.
func propSearch(t *testing.T, play func(*propGame)) {
	t.Helper()
	seed := *propSeed
	if seed == 0 {
		seed = rand.Uint64N(1e12) + 1
	}
	t.Logf("-lock.seed=%d", seed)
	most := cmp.Or(*propSteps, redistest.Rounds(600, 2000))
	for steps := 0; steps < most; seed++ {
		steps += propLength
		g := &propGame{}
		for rng, id := rand.New(rand.NewPCG(seed, 0)), 0; id < propLength; id++ {
			g.steps = append(g.steps, newPropStep(rng, id))
		}
		play(g)
		if g.failure == "" {
			continue
		}
		t.Fatalf("%s\n\nAll that was done:\n%s\n\nAgain: go test ./lock -run '^%s$' -lock.seed=%d",
			g.failure, strings.Join(g.log, "\n"), strings.ReplaceAll(t.Name(), "/", "$/^"), seed)
	}
}

// propStep is one step. What an operation does not need of it, it does not look at.
type propStep struct {
	id     int
	op     propOp
	locker int
	key    string
	lease  int // the latest one granted up to the step with this id
	units  time.Duration
	data   string
	pick   int
}

func newPropStep(rng *rand.Rand, id int) propStep {
	s := propStep{
		id:     id,
		locker: rng.IntN(3),
		key:    []string{"a", "a", "b", "c"}[rng.IntN(4)],
		lease:  id - 1 - rng.IntN(1<<rng.IntN(5)),
		units:  time.Duration(2 + rng.IntN(16<<rng.IntN(7))),
		pick:   rng.IntN(1 << 20),
	}
	data := make([]byte, []int{0, 1, 20, 300}[rng.IntN(4)])
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	s.data = string(data)
	all := 0
	for _, op := range propOps {
		all += op.weight
	}
	n := rng.IntN(all)
	for _, op := range propOps {
		if n -= op.weight; n < 0 {
			s.op = op
			break
		}
	}
	return s
}

// propOp does a step on Redis and on the model. It returns a line for the log, and the result on each side.
type propOp struct {
	name   string
	weight int
	do     func(g *propGame, s propStep) (what string, got, want any)
}

var propOps = []propOp{
	{"Claim", 24, func(g *propGame, s propStep) (string, any, any) {
		return g.claim(s, s.data, 0, func(locker *lock.Locker) (lock.Claim, error) {
			return locker.Claim(g.ctx, s.key, []byte(s.data), 0)
		})
	}},
	{"Claim under a hold", 12, func(g *propGame, s propStep) (string, any, any) {
		hold := 4 * g.time(s) // time is to pass in it
		return g.claim(s, s.data, hold, func(locker *lock.Locker) (lock.Claim, error) {
			return locker.Claim(g.ctx, s.key, []byte(s.data), hold)
		})
	}},
	{"TryAcquire", 10, func(g *propGame, s propStep) (string, any, any) { return g.tryAcquire(s) }},
	{"Resume", 8, propOnLease(func(g *propGame, s propStep, l *propLease) (string, any, any) {
		resumed := &propLease{step: s.id, key: l.key, ttl: g.site.leases[s.locker]}
		want := g.model.resume(resumed, l, g.site.renewing)
		lease, err := g.lockers[s.locker].Resume(g.ctx, l.key, l.real.Token())
		if lease != nil {
			resumed.real, resumed.token = lease, string(tokenBytes(lease))
		}
		return fmt.Sprintf("by locker %d", s.locker), propClass(err), want
	})},
	{"Settle", 7, propOnLease(func(g *propGame, s propStep, l *propLease) (string, any, any) {
		what := fmt.Sprintf("%s for %v", propShort(s.data), g.time(s))
		return what, propClass(l.real.Settle(g.ctx, []byte(s.data), g.time(s))), g.model.settle(l, s.data, g.time(s))
	})},
	{"Release", 6, propOnLease(func(g *propGame, _ propStep, l *propLease) (string, any, any) {
		return "", propClass(l.real.Release(g.ctx)), g.model.release(l)
	})},
	{"Extend", 10, propOnLease(func(g *propGame, s propStep, l *propLease) (string, any, any) {
		return g.time(s).String(), propClass(l.real.Extend(g.ctx, g.time(s))), g.model.extend(l, g.time(s))
	})},
	{"Abandon", 6, propOnLease(func(g *propGame, _ propStep, l *propLease) (string, any, any) {
		l.real.Abandon()
		g.model.abandon(l)
		return "", nil, nil
	})},
	{"Forget", 3, func(g *propGame, s propStep) (string, any, any) {
		return s.key, propClass(forget(g.ctx, g.lockers[s.locker], s.key)), g.model.forget(s.key)
	}},
	{"time", 14, func(g *propGame, s propStep) (string, any, any) {
		d := g.time(s)
		switch l := g.lease(s); {
		case l != nil && s.pick>>4%4 == 0: // past the lease, and not past a hold
			d = l.ttl + 2*g.site.margin
		case l != nil && s.pick>>4%4 == 1 && g.site.renewing: // to between the lease's end and the claim's
			d = max(l.until-g.model.local, 0).Truncate(time.Millisecond) + 2*g.site.margin
		}
		d = g.model.clearOf(g.site.margin, d, g.site.renewing)
		g.site.pass(d)
		g.model.pass(d, g.site.renewing)
		return d.String(), nil, nil
	}},
	{"foreign", 3, func(g *propGame, s propStep) (string, any, any) { return g.putForeign(s) }},
	{"FLUSHALL", 1, func(g *propGame, _ propStep) (string, any, any) {
		g.model.flush()
		return "", g.site.client.FlushAll(g.ctx).Err(), nil
	}},
	{"SCRIPT FLUSH", 1, func(g *propGame, _ propStep) (string, any, any) {
		return "", g.site.client.ScriptFlush(g.ctx).Err(), nil
	}},
}

// propOnLease makes an operation of one on a lease. It does nothing as long as none was granted.
func propOnLease(
	do func(*propGame, propStep, *propLease) (what string, got, want any),
) func(*propGame, propStep) (what string, got, want any) {
	return func(g *propGame, s propStep) (string, any, any) {
		lease := g.lease(s)
		if lease == nil {
			return "of no lease", nil, nil
		}
		what, got, want := do(g, s, lease)
		return strings.TrimSpace(fmt.Sprintf("of #%d on %s %s", lease.step, lease.key, what)), got, want
	}
}

// lease returns the latest lease that was granted up to the step that s tells, half of the time one that is not over.
func (g *propGame) lease(s propStep) (lease *propLease) {
	for _, l := range g.model.leases {
		if l.step <= s.lease && !(l.over && s.pick%2 == 0) {
			lease = l
		}
	}
	return lease
}

// propSite is where a history is played.
type propSite struct {
	client    *redis.Client
	options   []lock.Option
	leases    []time.Duration // how long, for each Locker
	unit      time.Duration   // what times are made of
	margin    time.Duration   // nothing is decided by less
	tolerance time.Duration   // how exactly times are known
	renewing  bool            // leases are renewed, and both clocks are one
	pass      func(time.Duration)
}

// propGame is a history, and what comes of it.
type propGame struct {
	steps   []propStep
	log     []string
	failure string

	ctx     context.Context
	site    propSite
	start   time.Time
	lockers []*lock.Locker
	model   propModel
}

func (g *propGame) time(s propStep) time.Duration { return s.units * g.site.unit }

func (g *propGame) fail(format string, args ...any) {
	if g.failure == "" {
		g.failure = fmt.Sprintf(format, args...)
	}
}

func (g *propGame) play(site propSite) {
	g.ctx, g.site, g.start = context.Background(), site, time.Now()
	g.model = propModel{keys: map[string]*propEntry{}}
	namespace := "property" + uuid.NewString()
	for _, ttl := range site.leases {
		g.lockers = append(g.lockers, lock.New(site.client, namespace, append(site.options, lock.WithTTL(ttl))...))
	}
	for _, s := range g.steps {
		what, got, want := s.op.do(g, s)
		g.log = append(g.log, fmt.Sprintf("#%-2d %s %s -> %v", s.id, s.op.name, what, got))
		if got != want {
			g.fail("#%d %s %s: got %v, want %v", s.id, s.op.name, what, got, want)
		} else {
			g.compare(s)
		}
		if g.failure != "" {
			break
		}
	}
	ctx, cancel := context.WithTimeout(g.ctx, 20*time.Second)
	defer cancel()
	for _, locker := range g.lockers {
		if err := locker.Close(ctx); err != nil {
			g.fail("Close: %v", err)
		}
	}
}

// propAnswer is what a claim was told.
type propAnswer struct {
	state lock.State
	data  string // the note or the value
	err   error
}

func (a propAnswer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%v %s", a.state, propShort(a.data))
}

func (g *propGame) claim(s propStep, note string, hold time.Duration, claim func(*lock.Locker) (lock.Claim, error)) (string, any, any) {
	l := &propLease{step: s.id, key: s.key, ttl: g.site.leases[s.locker]}
	var want propAnswer
	want.state, want.data, want.err = g.model.claim(l, note, hold, g.site.renewing)

	c, err := claim(g.lockers[s.locker])
	got := propAnswer{c.State, string(c.Note) + string(c.Value), propClass(err)}
	switch granted := got.state == lock.Granted; {
	case granted != (c.Lease != nil):
		g.fail("#%d: %v, and the lease is %v", s.id, got, c.Lease)
	case c.State == lock.Settled && c.Note != nil, c.State != lock.Settled && c.Value != nil:
		g.fail("#%d: %v with both note and value", s.id, c.State)
	case granted:
		l.real, l.token = c.Lease, string(tokenBytes(c.Lease))
	}
	return fmt.Sprintf("%s by locker %d, %v and %v, %s", s.key, s.locker, l.ttl, hold, propShort(note)), got, want
}

// tryAcquire is a Claim without a note that tells less.
func (g *propGame) tryAcquire(s propStep) (string, any, any) {
	told := ""
	what, _, want := g.claim(s, "", 0, func(locker *lock.Locker) (lock.Claim, error) {
		lease, ok, err := locker.TryAcquire(g.ctx, s.key)
		told = fmt.Sprint(ok, " ", propClass(err))
		if lease == nil {
			return lock.Claim{}, err
		}
		return lock.Claim{State: lock.Granted, Lease: lease}, err
	})
	answer := want.(propAnswer)
	if answer.state == lock.Granted {
		g.model.keys[s.key].isLock = true
	}
	if answer.state == lock.Settled {
		answer.err = lock.ErrSettled
	}
	return what, told, fmt.Sprint(answer.state == lock.Granted, " ", answer.err)
}

// putForeign puts under a key what no Locker wrote, or not in this version.
func (g *propGame) putForeign(s propStep) (string, any, any) {
	texts := []string{"", "", "foreign", "OGv\x01short", "OGc\x02" + strings.Repeat("x", 50)}
	e := &propEntry{kind: propForeign, data: texts[s.pick%len(texts)]}
	key := g.lockers[0].StorageKey(s.key)
	_, err := g.site.client.Pipelined(g.ctx, func(p redis.Pipeliner) error {
		p.Del(g.ctx, key)
		if s.pick>>4%3 == 0 {
			e = &propEntry{kind: propHash, data: "foreign"}
			p.HSet(g.ctx, key, "field", e.data)
		} else {
			p.Set(g.ctx, key, e.data, 0)
		}
		if s.pick>>8%2 == 0 {
			e.expiry = g.model.redis + g.time(s)
			p.PExpire(g.ctx, key, g.time(s))
		}
		return nil
	})
	g.model.put(s.key, e)
	return fmt.Sprintf("%s on %s: %s", e.kind, s.key, propShort(e.data)), propClass(err), nil
}

// compare looks at all that can be seen, in Redis and of the leases.
func (g *propGame) compare(s propStep) {
	var want []string
	for key := range g.model.keys {
		want = append(want, g.lockers[0].StorageKey(key))
	}
	slices.Sort(want)
	var all *redis.StringSliceCmd
	checks := map[string]func(*propEntry){}
	_, _ = g.site.client.Pipelined(g.ctx, func(p redis.Pipeliner) error { // every command's error is looked at
		all = p.Keys(g.ctx, "*")
		for key := range g.model.keys {
			at := g.lockers[0].StorageKey(key)
			text, hash, left := p.Get(g.ctx, at), p.HGetAll(g.ctx, at), p.PTTL(g.ctx, at)
			checks[key] = func(e *propEntry) {
				g.compareEntry(fmt.Sprintf("#%d: %s", s.id, key), e, text, hash)
				g.compareExpiry(fmt.Sprintf("#%d: %s", s.id, key), e, left)
			}
		}
		return nil
	})
	got, err := all.Result()
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		g.fail("#%d: keys %q, %v, want %q: %v", s.id, got, err, want, g.model.keys)
		return
	}
	for key, e := range g.model.keys {
		checks[key](e)
	}
	for _, l := range g.model.leases {
		g.compareLease(fmt.Sprintf("#%d: lease #%d", s.id, l.step), l)
	}
}

// compareEntry knows of what is stored: a head of 4 bytes and the token, and the note or the value at the end, with
// times before.
func (g *propGame) compareEntry(where string, e *propEntry, text *redis.StringCmd, hash *redis.MapStringStringCmd) {
	got, err := text.Result()
	switch {
	case e.kind == propHash:
		if fields, err := hash.Result(); err != nil || len(fields) != 1 || fields["field"] != e.data {
			g.fail("%s: %v, %v, want %s", where, fields, err, e.kind)
		}
	case err != nil,
		e.kind == propForeign && got != e.data,
		e.kind == propValue && !(strings.HasPrefix(got, valueStart+e.owner.token) && got[min(valueLength, len(got)):] == e.data),
		e.kind == propClaim && !(strings.HasPrefix(got, claimStart+e.owner.token) && strings.HasSuffix(got[20:], e.data)):
		g.fail("%s: %q, %v, want %s: %s", where, got, err, e.kind, propShort(e.data))
	}
}

func (g *propGame) compareExpiry(where string, e *propEntry, left *redis.DurationCmd) {
	got, err := left.Result()
	if err != nil || e.expiry == 0 {
		if err != nil || got >= 0 {
			g.fail("%s: %v left, %v, want it to stay", where, got, err)
		}
		return
	}
	from, to := g.model.mayExpire(e)
	if from, to = from-g.model.redis, to-g.model.redis; got < from-g.site.tolerance || got > to+g.site.tolerance {
		g.fail("%s: %v left, want %v to %v", where, got, from, to)
	}
	if from != to {
		e.expiry = g.model.redis + got
	}
}

func (g *propGame) compareLease(where string, l *propLease) {
	until := l.real.Until().Sub(g.start)
	if from, to := g.model.mayEnd(l); until < from-g.site.tolerance || until > to+g.site.tolerance {
		g.fail("%s: until %v, want %v to %v", where, until, from, to)
	}
	cause := context.Cause(l.real.Context())
	if g.site.renewing { // or else nothing is to be learned, and clocks differ by what the test has taken
		g.model.learn(l, until, cause)
	}
	if !errors.Is(cause, l.cause) || (l.real.Context().Err() == nil) != (l.cause == nil) {
		g.fail("%s: its context has ended with %v, want %v", where, cause, l.cause)
	}
}

// propShort shows bytes of any length.
func propShort(data string) string {
	if len(data) > 8 {
		return fmt.Sprintf("%q... (%d bytes)", data[:8], len(data))
	}
	return fmt.Sprintf("%q", data)
}
