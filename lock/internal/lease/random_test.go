package lease_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

var (
	leaseSeed = flag.Uint64("lease.seed", 0, "seed of the first random life of a lease; 0 takes one by chance")
	leaseRuns = flag.Int("lease.runs", 500, "how many random lives a test runs")
)

// fault is what happens to a command.
type fault int

const (
	fine        fault = iota
	requestLost       // it never arrives, and the caller gets no reply
	replyLost         // it is executed, and the caller gets no reply
	arrivesLate       // it is executed after the caller has got no reply
	refused           // the server answers with an error
	faults
)

// server is one key of a Redis, and executes commands as the scripts do. It checks what must hold whenever a command is
// sent.
type server struct {
	*life
	fault func() (fault, time.Duration) // what happens to the next command, and how long its answer takes

	// guarded by life.mu
	claimed, taken bool // the key holds our claim, or another's
	value          []byte
	expiry         time.Time // of the key, with the hold
	hold           time.Duration
}

// life is one lease with all that is done to it.
type life struct {
	t      *testing.T
	core   *lease.Core
	first  *lease.Handle
	other  *lease.Handle // nil until it joins
	group  *background.Group
	server *server

	mu       sync.Mutex
	log      []string
	begin    time.Time
	phase    int
	until    time.Time
	ends     map[*lease.Handle]error
	harmed   bool // the key was taken away by force
	released bool // a Release was sent
	settled  bool // a Settle was sent
	settles  int  // calls of Settle
	quiet    bool // Close has returned, and all calls
}

// note writes down what happens. The caller holds mu.
func (l *life) note(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf("%v: ", time.Since(l.begin))+fmt.Sprintf(format, args...))
}

// fail reports what must not be, with all that has happened. The caller holds mu.
func (l *life) fail(format string, args ...any) {
	l.note("FAILED: "+format, args...)
	l.t.Errorf("%s", strings.Join(l.log, "\n"))
}

// check checks what holds at every moment. The caller holds mu.
func (l *life) check() {
	if phase := l.core.Phase(); phase < l.phase {
		l.fail("the lease was %s and is %s", lease.PhaseNames[l.phase], lease.PhaseNames[phase])
	} else {
		l.phase = phase
	}
	if until := l.core.Until(); until.Before(l.until) {
		l.fail("Until has become shorter by %v", l.until.Sub(until))
	} else {
		l.until = until
	}
	for _, h := range []*lease.Handle{l.first, l.other} {
		if h == nil {
			continue
		}
		err, before := h.Err(), l.ends[h]
		if before != nil && err != before {
			l.fail("Err was %v and is %v", before, err)
		}
		if got := context.Cause(h.Context()); got != err && before == err {
			l.fail("Err is %v, and the context's cause %v", err, got)
		}
		l.ends[h] = err
		if err == nil && time.Now().After(l.until) {
			l.fail("Err is nil after Until")
		}
	}
	// What a lease is for: while a handle has not ended nobody else has the key.
	s := l.server
	s.expire()
	if l.ends[l.first] == nil && time.Now().Before(l.until) && !l.harmed && !s.claimed && s.value == nil {
		l.fail("Err is nil, and the server does not have our claim")
	}
}

// expire lets the key go when its time is over. The caller holds mu.
func (s *server) expire() {
	if !time.Now().Before(s.expiry) {
		s.claimed, s.taken, s.value = false, false, nil
	}
}

func (s *server) holder() store.Holder {
	switch {
	case s.claimed:
		return store.Ours
	case s.taken:
		return store.Another
	case s.value != nil:
		return store.OurValue
	}
	return store.Nobody
}

// do lets a command arrive, or not, and execute it: that returns whose the key was, with mu held.
func (s *server) do(ctx context.Context, name string, execute func() (store.Holder, error)) store.Found {
	s.mu.Lock()
	s.check()
	f, takes := s.fault()
	s.note("sent %s (fault %d, %v)", name, f, takes)
	switch {
	case s.quiet:
		s.fail("%s is sent after Close", name)
	case lease.PhaseNames[s.phase] == "ended":
		s.fail("%s is sent after the end", name)
	}
	s.mu.Unlock()

	var o store.Found
	run := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expire()
		o.Holder, o.Err = execute()
		s.note("%s found %d, %v", name, o.Holder, o.Err)
	}
	limited, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	noReply := func() store.Found {
		<-limited.Done()
		return store.Found{Err: context.DeadlineExceeded, Unsure: true}
	}
	switch f {
	case requestLost:
		return noReply()
	case arrivesLate:
		s.group.Go(func() { time.Sleep(opTimeout + takes); run() })
		return noReply()
	case refused:
		_ = background.Pause(limited, takes)
		return store.Found{Err: errDown}
	}
	if background.Pause(limited, takes/2) != nil {
		return noReply()
	}
	run()
	if f == replyLost || background.Pause(limited, takes/2) != nil {
		return noReply()
	}
	return o
}

func (s *server) Extend(ctx context.Context, _ store.Key, _ uuid.UUID, d time.Duration) store.Found {
	name := "extend"
	if d == ttl {
		name = "renew"
	}
	if s.mu.Lock(); d == ttl && lease.PhaseNames[s.core.Phase()] != "active" {
		s.fail("a renewal is sent for a lease that is %s", lease.PhaseNames[s.core.Phase()])
	}
	s.mu.Unlock()
	return s.do(ctx, name, func() (store.Holder, error) {
		if end := time.Now().Add(d + s.hold); s.claimed && end.After(s.expiry) {
			s.expiry = end
		}
		return s.holder(), nil
	})
}

func (s *server) Node(store.Key) any { return s }

// KeepReleasing releases the claim in a while.
func (s *server) KeepReleasing(store.Unneeded) {
	s.group.Go(func() {
		_ = background.Pause(s.group.Context(), 20*ms)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note("keeps releasing")
		s.claimed = false
	})
}

func (s *server) Settle(
	ctx context.Context, _ store.Key, _ uuid.UUID, _, value []byte, d time.Duration,
) store.Found {
	s.mu.Lock()
	s.settled = true
	s.mu.Unlock()
	value = bytes.Clone(value)
	return s.do(ctx, "settle", func() (store.Holder, error) {
		h := s.holder()
		if h == store.OurValue && !bytes.Equal(s.value, value) {
			s.fail("Settle is sent with two values")
		}
		if h != store.Another {
			s.claimed, s.value, s.expiry = false, value, time.Now().Add(d)
		}
		return h, nil
	})
}

func (s *server) Release(ctx context.Context, _ store.Key, _ uuid.UUID, _ []byte, _ bool) store.Found {
	s.mu.Lock()
	s.released = true
	s.mu.Unlock()
	return s.do(ctx, "release", func() (store.Holder, error) {
		h := s.holder()
		s.claimed = false
		return h, nil
	})
}

// live runs steps of the life of a lease whose claim has that hold, and then ends it. Its commands meet what fault
// returns.
func live(t *testing.T, hold time.Duration, fault func() (fault, time.Duration), steps ...func(*life)) {
	l := &life{t: t, begin: time.Now(), ends: map[*lease.Handle]error{}, group: background.NewGroup(context.Background())}
	s := &server{life: l, fault: fault, claimed: true, hold: hold, expiry: time.Now().Add(ttl + hold)}
	l.server = s
	var backlog lease.Backlog
	config := lease.Config{
		TTL: ttl, OpTimeout: opTimeout, Renew: true, Group: l.group, Backlog: &backlog,
	}
	l.core, l.first = new(lease.Core), new(lease.Handle)
	id := lease.ID{Key: store.Namespace("ns").Key("key"), Token: store.NewToken(), Hold: hold}
	l.core.Init(&config, s, id, context.Background(), time.Now(), l.first)

	var calls sync.WaitGroup
	for _, step := range steps {
		calls.Go(func() { step(l) })
		synctest.Wait()
		l.mu.Lock()
		l.check()
		l.mu.Unlock()
		time.Sleep(100 * time.Microsecond) // so that no two things happen at the same instant
	}
	calls.Wait()
	backlog.Close()
	if err := l.group.Close(context.Background()); err != nil {
		t.Error(err)
	}
	time.Sleep(ttl) // for a renewal under way
	l.mu.Lock()
	l.quiet = true
	l.check()
	if stats := backlog.Stats(); stats.Pending != 0 || stats.Bytes != 0 {
		l.fail("%+v after Close", stats)
	}
	l.mu.Unlock()
	time.Sleep(time.Hour)
	synctest.Wait()
}

// returned writes down what a call has returned, and checks that against the server. The caller of a Settle or a
// Release may rely on it.
func (l *life) returned(doing string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	l.note("%s returned %v", doing, err)
	s := l.server
	switch {
	case doing == "Settle" && err == nil && s.value == nil && !l.harmed:
		l.fail("Settle has returned nil, and the value is not there")
	case doing == "Settle" && errors.Is(err, store.ErrLost) && !l.harmed && !l.released && s.value == nil && s.claimed:
		l.fail("Settle has returned ErrLost, and our claim is there")
	case doing == "Settle again" && !errors.Is(err, store.ErrLost):
		l.fail("another Settle has returned %v", err)
	case doing == "Release" && err == nil && s.claimed && l.phase > 0:
		l.fail("Release has returned nil, and our claim is there")
	}
}

// settle calls Settle. Only the first call may send anything.
func (l *life) settle(value string) {
	l.mu.Lock()
	l.settles++
	doing := "Settle"
	if l.settles > 1 {
		doing = "Settle again"
	}
	l.mu.Unlock()
	l.returned(doing, settle(l.first, value, 10*time.Minute))
}

// The calls of a life.
func extend(l *life)  { l.returned("Extend", l.first.Extend(context.Background(), 20*time.Second)) }
func release(l *life) { l.returned("Release", l.first.Release(context.Background())) }
func settleV(l *life) { l.settle("value") }
func settleW(l *life) { l.settle("other") }
func abandon(l *life) { l.first.AbandonAt(time.Now()) }

func abandonAt(l *life) { l.first.AbandonAt(time.Now().Add(10 * time.Second)) }

func take(l *life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("another takes the key")
	s := l.server
	l.harmed, s.claimed, s.taken, s.value, s.expiry = true, false, true, nil, time.Now().Add(time.Hour)
}

func forget(l *life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("the server forgets the key")
	l.harmed, l.server.claimed, l.server.taken, l.server.value = true, false, false, nil
}

// Every sequence of three calls, at the same time and one after the other, while the first two commands meet every
// fault.
func TestEveryOrder(t *testing.T) {
	t.Parallel()
	calls := map[string]func(*life){"extend": extend, "settle": settleV, "release": release, "renewal": func(*life) { time.Sleep(ttl/3 + 10*ms) }}
	met := []fault{fine, replyLost, arrivesLate, refused}
	for a, first := range calls {
		t.Run(a, func(t *testing.T) {
			t.Parallel()
			for _, second := range calls {
				for _, third := range calls {
					for n := range len(met) * len(met) * 4 {
						synctest.Test(t, func(t *testing.T) {
							left := n / 4
							hold := time.Duration(n/2%2) * time.Minute
							next := func() (fault, time.Duration) {
								f := met[left%len(met)] // after two commands all is fine
								left /= len(met)
								return f, 30*ms + 30*time.Microsecond
							}
							if n%2 == 1 { // one after the other
								live(t, hold, next, func(l *life) { first(l); second(l); third(l) })
								return
							}
							live(t, hold, next, first, second, third)
						})
						if t.Failed() {
							return
						}
					}
				}
			}
		})
	}
}

// Random lives: whatever is called, answered and lost, the invariants hold.
func TestRandomLives(t *testing.T) {
	t.Parallel()
	seed := *leaseSeed
	if seed == 0 {
		seed = rand.Uint64N(1e12) + 1
	}
	t.Logf("-lease.seed=%d", seed)
	for range *leaseRuns {
		synctest.Test(t, func(t *testing.T) { randomLife(t, seed) })
		if t.Failed() {
			t.Logf("again: go test -run '^TestRandomLives$' -lease.seed=%d -lease.runs=1", seed)
			return
		}
		seed++
	}
}

func randomLife(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	trouble := rng.Float64()                // how many commands meet a fault
	draw := func() (fault, time.Duration) { // with life.mu held
		f := fine
		if rng.Float64() < trouble {
			f = fault(rng.IntN(int(faults)))
		}
		return f, time.Duration(rng.Int64N(int64(600*ms))) + 1
	}
	calls := []func(*life){extend, settleV, settleV, settleW, release, abandon, abandonAt, take, forget}
	var steps []func(*life)
	for range 3 + rng.IntN(10) {
		call, after := calls[rng.IntN(len(calls))], time.Duration(rng.Int64N(int64(40*time.Second)))
		if rng.IntN(3) == 0 {
			after %= time.Second // close together
		}
		steps = append(steps, func(l *life) { time.Sleep(after); call(l) })
	}
	live(t, time.Duration(rng.IntN(2))*time.Minute, draw, steps...)
}
