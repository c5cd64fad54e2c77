package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// No key is taken although nothing ran: what happens to claims that no run needs, under a hold and without one.

const hold = 24 * time.Hour

// holds are those of the claims: with a hold, and without one for a lease of an hour.
var holds = map[string]struct {
	hold time.Duration
	opts []lock.Option
}{
	"a hold": {hold, nil}, "no hold": {0, []lock.Option{lock.WithTTL(time.Hour)}},
}

// executed returns how many scripts the server has executed, and how many SETs.
func executed(t *testing.T, s *redistest.Server) (scripts, sets int) {
	t.Helper()
	for _, line := range strings.Split(s.Client(t).Info(t.Context(), "commandstats").Val(), "\r\n") {
		name, rest, _ := strings.Cut(line, ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(calls)
		switch name {
		case "cmdstat_eval", "cmdstat_evalsha":
			scripts += n
		case "cmdstat_set":
			sets += n
		}
	}
	return scripts, sets
}

// impatientLocker returns a Locker with little time for one operation. Its Close may fail: it has that little time too.
func impatientLocker(t *testing.T, client redis.UniversalClient, limit time.Duration, opts ...lock.Option) *lock.Locker {
	t.Helper()
	locker := lock.New(client, "test", append(opts, lock.WithOpTimeout(limit))...)
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil && !errors.Is(err, lock.ErrUnreleased) {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

// claimInVain claims keys at the same time, and wants each claim to get no reply.
func claimInVain(t *testing.T, locker *lock.Locker, hold time.Duration, keys ...string) {
	t.Helper()
	for _, ended := range claimAll(t, locker, hold, keys) {
		if err := <-ended; err == nil {
			t.Error("a claim is granted, or knows what it meets")
		}
	}
}

// stall makes claims of a proxy's client arrive late, for at least that long: until resume has returned.
type stall func(t *testing.T, s *redistest.Server, p *redistest.Proxy, lasts time.Duration) (resume func())

var stalls = map[string]stall{
	"stopped process": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy, lasts time.Duration) func() {
		s.Pause(t)
		return after(lasts, func() { s.Resume(t) })
	},
	"busy script": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy, lasts time.Duration) func() {
		ended, busy := make(chan error, 1), s.Client(t, patient)
		if err := busy.ConfigSet(t.Context(), "lua-time-limit", "0").Err(); err != nil { // it refuses no command
			t.Fatal(err)
		}
		go func() {
			const noticed = 0.5 // it has run for less when the Ping below fails
			ended <- busy.Eval(context.Background(), busyScript, nil, lasts.Seconds()+noticed).Err()
		}()
		asks := s.Client(t, redistest.OneTry, func(o *redis.Options) { o.ReadTimeout = 50 * time.Millisecond })
		eventually(t, "the script runs", func() bool { return asks.Ping(t.Context()).Err() != nil })
		return func() {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	},
	"slow network": func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy, lasts time.Duration) func() {
		return after(lasts, p.HoldRequest(redistest.Named("SET")).Lift)
	},
}

// busyScript runs for so many seconds of processor time: in a script the server's clock may stand still.
const busyScript = `
local function seconds() return tonumber(string.match(redis.call('INFO', 'cpu'), 'used_cpu_user:([%d.]+)')) end
local start = seconds()
while seconds() - start < tonumber(ARGV[1]) do
	for i = 1, 1e5 do end
end
return 1`

// after returns a function that calls resume, but not before d from now.
func after(d time.Duration, resume func()) func() {
	end := time.Now().Add(d)
	return func() {
		time.Sleep(time.Until(end))
		resume()
	}
}

// Redis stands still for longer than a call waits, claims of each kind get no reply, and Redis then executes them: they are
// released long before the end of their leases.
//
// fault: Redis stands still (stopped, a slow script, a fork) for longer than a call waits, and executes the claim afterwards
// fault: claim arrives after the caller gave up
func TestClaimsInAServerThatStandsStill(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lasts    time.Duration
		kinds    []string
		onlyLong bool
	}{
		{lasts: 6 * time.Second, kinds: []string{"stopped process", "busy script", "slow network"}, onlyLong: true},
		{lasts: 3 * time.Second, kinds: []string{"slow network"}, onlyLong: true}, // two releases overtake the claim
		{lasts: 3 * time.Second, kinds: []string{"stopped process", "busy script"}},
		{lasts: 2 * time.Second, kinds: []string{"stopped process", "busy script", "slow network"}, onlyLong: true},
		{lasts: 1500 * time.Millisecond, kinds: []string{"stopped process", "busy script", "slow network"}},
	} {
		for _, kind := range test.kinds {
			t.Run(fmt.Sprint(kind, ", ", test.lasts), func(t *testing.T) {
				t.Parallel()
				if test.onlyLong {
					redistest.Long(t)
				}
				server := redistest.Start(t)
				p := redistest.NewProxy(t, server.Addr())
				var lockers []impatient
				for _, of := range holds {
					for _, opt := range clientsThat {
						lockers = append(lockers, impatient{p.Client(t, opt), of.hold, of.opts})
					}
				}
				testStall(t, server, lockers, time.Second, func() func() { return stalls[kind](t, server, p, test.lasts) })
			})
		}
	}
}

// fault: server stopped for longer than an operation, with 300 claims under a hold in its buffers, then continued
func TestManyClaimsInAServerThatStandsStill(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lockers := make([]impatient, 100)
	for i := range lockers {
		lockers[i] = impatient{server.Client(t), hold, nil}
	}
	testStall(t, server, lockers, 5*time.Second, func() func() { return stalls["stopped process"](t, server, nil, 0) })
}

// impatient is a Locker to be, and the hold of its claims.
type impatient struct {
	client *redis.Client
	hold   time.Duration
	opts   []lock.Option
}

// testStall sends claims of several Lockers, three of each, into a server that stands still. Those that a busy
// machine has sent in time are executed in the end, and released.
func testStall(t *testing.T, server *redistest.Server, impatients []impatient, limit time.Duration, stall func() (resume func())) {
	const each = 3 // a Locker sends so many alone
	load(t, newLocker(t, server.Client(t)))
	lockers := make([]*lock.Locker, len(impatients))
	for i, of := range impatients {
		lockers[i] = impatientLocker(t, of.client, limit, of.opts...)
		connect(t, of.client, each)
	}
	_, sets := executed(t, server)
	resume := stall()
	var all sync.WaitGroup
	for i, locker := range lockers {
		all.Go(func() { claimInVain(t, locker, impatients[i].hold, names(fmt.Sprint(i, " "), each)...) })
	}
	all.Wait()
	resume()
	eventually(t, "claims are executed", func() bool { _, now := executed(t, server); return now > sets })
	eventually(t, "the keys are free", func() bool { return len(server.Keys(t)) == 0 })
}

// connect opens n connections of a client.
func connect(t *testing.T, client *redis.Client, n int) {
	t.Helper()
	for range n {
		conn := client.Conn()
		defer func() { _ = conn.Close() }()
		must(t, conn.Ping(t.Context()).Err())
	}
}

// trouble does something in the place of the next SETs, one after the other.
type trouble struct {
	with []func(ctx context.Context, cmd redis.Cmder, next func(context.Context) error) error
}

func (tr *trouble) hook(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error {
	if cmds[0].Name() != "set" || len(tr.with) == 0 {
		return next(ctx)
	}
	do := tr.with[0]
	tr.with = tr.with[1:]
	return do(ctx, cmds[0], next)
}

// lateSet is a SET that does not arrive at first.
type lateSet struct{ args atomic.Pointer[[]any] }

// keep takes the place of a SET, whose connection breaks before it arrives.
func (l *lateSet) keep(_ context.Context, cmd redis.Cmder, _ func(context.Context) error) error {
	args := cmd.Args()
	l.args.Store(&args)
	cmd.SetErr(io.ErrUnexpectedEOF)
	return cmd.Err()
}

// troubled returns a Locker whose SETs pass the hook.
func troubled(t *testing.T, b *bubble, tr *trouble, opts ...lock.Option) *lock.Locker {
	t.Helper()
	direct := redistest.NewDirect(t, b.client.Options())
	locker := newLocker(t, direct.Client, append(opts, lock.WithOpTimeout(500*time.Millisecond))...)
	load(t, locker)
	direct.AddHook(hook(tr.hook))
	return locker
}

// arrive lets the server execute a SET that was kept, and wants it to take the key.
func (l *lateSet) arrive(t *testing.T, b *bubble, key string) {
	t.Helper()
	_ = b.client.Do(t.Context(), *l.args.Load()...).Err() // redis.Nil: nothing was there before
	if !b.server.Exists(key) {
		t.Fatal("the late claim has not taken the key")
	}
}

// The server stands still, for half a lease or for longer than one, and then executes all that it was sent.
//
// fault: Redis stands still for longer than a call waits, and executes the claim afterwards
func TestClaimArrivesLate(t *testing.T) {
	t.Parallel()
	const lease = time.Minute
	for name, after := range map[string]time.Duration{"half a lease": lease / 2, "more than a lease": lease * 3 / 2} {
		for claims, of := range holds {
			for client, opt := range clientsThat {
				t.Run(name+", "+claims+", client that "+client, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						b := newBubble(t, opt)
						locker := troubled(t, b, &trouble{}, lock.WithTTL(lease))
						b.stopped.close()
						claimInVain(t, locker, of.hold, "k")
						time.Sleep(after)
						b.stopped.open()
						time.Sleep(3 * time.Second)
						if b.server.Exists(locker.StorageKey("k")) {
							t.Error("the key is taken 3 s after the server goes on")
						}
						time.Sleep(time.Hour)
						if n := locker.Stats().Releases; n != 0 {
							t.Errorf("%d claims are being released after an hour", n)
						}
						closeWithin(t, locker)
					})
				})
			}
		}
	}
}

// firstTryIsLost runs test in bubbles with a claim whose second try was granted. The first one has not arrived.
func firstTryIsLost(t *testing.T, test func(t *testing.T, b *bubble, locker *lock.Locker, claim lock.Claim, first *lateSet, hold time.Duration)) {
	for claims, of := range holds {
		t.Run(claims, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, tr, first := newBubble(t), &trouble{}, &lateSet{}
				locker := troubled(t, b, tr, of.opts...)
				tr.with = append(tr.with, first.keep)
				claim, err := locker.Claim(t.Context(), "k", nil, of.hold)
				if err != nil || claim.State != lock.Granted {
					t.Fatalf("Claim: %v, %v", claim.State, err)
				}
				test(t, b, locker, claim, first, of.hold)
			})
		})
	}
}

// fault: first try of a claim lost, second granted, lease released, then the first arrives. Expected: it is released again,
// and the lease is not released before.
func TestFirstTryArrivesAfterTheRelease(t *testing.T) {
	t.Parallel()
	firstTryIsLost(t, func(t *testing.T, b *bubble, locker *lock.Locker, claim lock.Claim, first *lateSet, _ time.Duration) {
		time.Sleep(time.Minute)
		if err := errors.Join(claim.Lease.Err(), claim.Lease.Release(t.Context())); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		first.arrive(t, b, claim.Key)
		time.Sleep(11 * time.Minute)
		if b.server.Exists(claim.Key) {
			t.Error("the key is taken by a claim that was released")
		}
		closeWithin(t, locker)
	})
}

// fault: first try of a claim lost, second granted, lease settled, then the first arrives when the value has expired.
// Expected: the key is free again, and a Close before that names it.
func TestFirstTryArrivesAfterTheValue(t *testing.T) {
	t.Parallel()
	firstTryIsLost(t, func(t *testing.T, b *bubble, locker *lock.Locker, claim lock.Claim, first *lateSet, _ time.Duration) {
		must(t, claim.Lease.Settle(t.Context(), []byte("v"), time.Hour))
		time.Sleep(3 * time.Second)
		if !b.server.Exists(claim.Key) {
			t.Error("the value was released")
		}
		b.server.Del(claim.Key) // the value has expired
		first.arrive(t, b, claim.Key)
		time.Sleep(11 * time.Minute)
		if b.server.Exists(claim.Key) {
			t.Error("the key is taken by a claim that was settled")
		}
		closeWithin(t, locker)
	})
	firstTryIsLost(t, func(t *testing.T, _ *bubble, locker *lock.Locker, claim lock.Claim, _ *lateSet, hold time.Duration) {
		must(t, claim.Lease.Settle(t.Context(), []byte("v"), time.Hour))
		err, isLong := locker.Close(t.Context()), hold > 0 // else the claim is soon gone
		if isNamed := err != nil && strings.Contains(err.Error(), claim.Key); isNamed != isLong || isNamed != errors.Is(err, lock.ErrUnreleased) {
			t.Errorf("Close: %v, want ErrUnreleased and the key: %t", err, isLong)
		}
		if s := locker.Stats(); s.Releases != 0 || s.ReleasesGivenUp > 0 != isLong {
			t.Errorf("%+v; given up: %t", s, isLong)
		}
	})
}

// A claim whose reply comes when its lease would be over is released, and forgotten: no other command of it may arrive.
func TestGrantedTooLateIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 100 * time.Millisecond
		b, tr := newBubble(t), &trouble{}
		locker := troubled(t, b, tr, lock.WithTTL(ttl))
		tr.with = append(tr.with, func(ctx context.Context, cmd redis.Cmder, next func(context.Context) error) error {
			defer time.Sleep(ttl)
			return next(ctx)
		})
		claimInVain(t, locker, hold, "k")
		synctest.Wait()
		if s := locker.Stats(); s.Releases != 0 || b.server.Exists(locker.StorageKey("k")) {
			t.Errorf("%+v, want a free key, and no claim that is released again", s)
		}
		closeWithin(t, locker)
	})
}

// Close names the key of a lock whose release has got no reply, unless the lease has run out, which frees the key.
//
// fault: server silent from a Release to the end of Close
func TestCloseNamesALockThatItLeaves(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before time.Duration // Close
		want   error
	}{"the lease lasts": {time.Minute, lock.ErrUnreleased}, "the lease has run out": {time.Hour, nil}} {
		t.Run(name, bubbled(func(t *testing.T, b *bubble) {
			locker := b.locker(t)
			load(t, locker)
			lease := acquire(t, locker, "k")
			must(t, lease.Extend(t.Context(), 30*time.Minute))
			b.silent.Store(true)
			locker.Go(func(context.Context) { _ = lease.Release(t.Context()) })
			time.Sleep(test.before)
			err := locker.Close(t.Context())
			if !errors.Is(err, test.want) || test.want != nil && !strings.Contains(err.Error(), locker.StorageKey("k")) {
				t.Errorf("Close: %v, want %v with the key", err, test.want)
			}
			wantErr(t, "another Close", locker.Close(t.Context()), nil)
		}))
	}
}
