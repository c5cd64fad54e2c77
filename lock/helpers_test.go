package lock_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// bubble is a Redis inside a testing/synctest bubble: miniredis on the bubble's clock, reached through pipes in memory.
type bubble struct {
	server  *miniredis.Miniredis
	client  *redis.Client
	direct  *redistest.Direct // whose client that is; takes its hooks
	silent  atomic.Bool       // every command is swallowed
	full    atomic.Bool       // every Settle is
	deaf    atomic.Bool       // replies to client are
	stopped gate              // while it is shut, the server carries out nothing
	slow    gate              // while it is shut, replies to client are on their way

	mu   sync.Mutex
	seen map[string]int // commands, and what scripts call
	sent int            // commands of client, without subscriptions
}

func newBubble(t *testing.T, opts ...func(*redis.Options)) *bubble {
	t.Helper()
	b := &bubble{server: miniredis.NewMiniRedis(), seen: map[string]int{}}
	b.server.ClockTTL(true)
	o := &redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := b.server.Dial()
			if err == nil {
				b.server.Server().SetPreHook(b.hook)
			}
			return conn, err
		},
	}
	for _, opt := range opts {
		opt(o)
	}
	t.Cleanup(b.server.Close)
	b.direct = redistest.NewDirect(t, o)
	b.direct.AddHook(hook(b.clientHook))
	b.client = b.direct.Client
	return b
}

// inBubble runs test in a bubble, in parallel with other tests.
func inBubble(t *testing.T, test func(t *testing.T, b *bubble), opts ...func(*redis.Options)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newBubble(t, opts...)) })
}

// bubbled returns a subtest in a bubble.
func bubbled(test func(t *testing.T, b *bubble)) func(*testing.T) {
	return func(t *testing.T) { inBubble(t, test) }
}

// gate stops those that pass while it is shut.
type gate struct{ shut atomic.Pointer[chan struct{}] }

func (g *gate) close() {
	c := make(chan struct{})
	g.shut.Store(&c)
}

func (g *gate) open() { close(*g.shut.Swap(nil)) }

func (g *gate) pass() {
	if shut := g.shut.Load(); shut != nil {
		<-*shut
	}
}

// clientHook counts commands, and keeps or swallows their replies.
func (b *bubble) clientHook(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error {
	b.mu.Lock()
	b.sent += len(cmds)
	b.mu.Unlock()
	err := next(ctx)
	b.slow.pass()
	if b.deaf.Load() {
		<-ctx.Done()
		err = ctx.Err()
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}

// total is how many commands the client has sent.
func (b *bubble) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

// hook counts commands, and swallows those that it is to swallow.
func (b *bubble) hook(_ *server.Peer, cmd string, args ...string) bool {
	b.stopped.pass()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[strings.ToUpper(cmd)]++
	settles := strings.Contains(strings.Join(args, " "), "OGv")
	return b.silent.Load() || b.full.Load() && settles
}

func (b *bubble) commands(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[name]
}

func (b *bubble) locker(t *testing.T, opts ...lock.Option) *lock.Locker {
	t.Helper()
	return newLocker(t, b.client, append([]lock.Option{lock.WithOpTimeout(500 * time.Millisecond)}, opts...)...)
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErr fails the test unless err is want, or nil if that is.
func wantErr(t testing.TB, doing string, err, want error) {
	t.Helper()
	if (want == nil) != (err == nil) || !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", doing, err, want)
	}
}

// newLocker returns a Locker that is closed at the end of the test, when nothing must be left of its work. Its time for
// one operation is long, for a busy machine must not fail a test.
func newLocker(t *testing.T, client redis.UniversalClient, opts ...lock.Option) *lock.Locker {
	t.Helper()
	locker := lock.New(client, "test", append([]lock.Option{lock.WithOpTimeout(time.Minute)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		wantErr(t, "Close", locker.Close(ctx), nil)
	})
	return locker
}

// claimUnder is acquire of a claim with that hold.
func claimUnder(t *testing.T, locker *lock.Locker, key string, hold time.Duration) *lock.Lease {
	t.Helper()
	claim, err := locker.Claim(t.Context(), key, nil, hold)
	if err != nil || claim.State != lock.Granted {
		t.Fatalf("Claim: %v, %v", claim.State, err)
	}
	return claim.Lease
}

func acquire(t *testing.T, locker *lock.Locker, key string) *lock.Lease {
	t.Helper()
	lease, ok, err := locker.TryAcquire(t.Context(), key)
	if err != nil || !ok {
		t.Fatalf("TryAcquire: %v, %v", ok, err)
	}
	return lease
}

// patient lets a client wait long for an answer, on many connections: what is late in a test is so because the test
// wants it.
func patient(o *redis.Options) { o.ReadTimeout, o.PoolSize = 5*time.Minute, 1000 }

// forget removes what key holds, as an operator does, even if its holder is at work.
func forget(ctx context.Context, locker *lock.Locker, key string) error {
	info, err := locker.Inspect(ctx, locker.StorageKey(key))
	if err != nil || info.State == lock.Free {
		return err
	}
	return locker.Forget(ctx, info.Key, info.Token, true)
}

func release(t testing.TB, lease *lock.Lease) {
	t.Helper()
	wantErr(t, "Release", lease.Release(t.Context()), nil)
}

// leave brings key into a state, and returns the lease of the claim that did.
func leave(t *testing.T, locker *lock.Locker, b interface {
	Elapse(testing.TB, time.Duration)
}, key string, state lock.State) *lock.Lease {
	t.Helper()
	hold := time.Duration(0)
	if state == lock.Abandoned {
		hold = time.Hour
	}
	claim, err := locker.Claim(t.Context(), key, []byte(secretNote), hold)
	if err != nil || claim.State != lock.Granted {
		t.Fatalf("%v, %v", claim.State, err)
	}
	switch state {
	case lock.Abandoned:
		b.Elapse(t, locker.TTL()+time.Minute)
	case lock.Settled:
		must(t, claim.Lease.Settle(t.Context(), []byte(secretValue), time.Hour))
	}
	return claim.Lease
}

// inspect looks at key, and fails the test if it has another state.
func inspect(t *testing.T, locker *lock.Locker, key string, want lock.State) lock.Info {
	t.Helper()
	info, err := locker.Inspect(t.Context(), locker.StorageKey(key))
	if err != nil || info.State != want {
		t.Fatalf("Inspect: %v, %v, want %v", info.State, err, want)
	}
	return info
}

// eachLocker runs test on each server, with and without fences. No lease is renewed.
func eachLocker(t *testing.T, test func(t *testing.T, b redistest.Backend, locker *lock.Locker)) {
	t.Helper()
	for name, opts := range map[string][]lock.Option{"plain": nil, "fenced": {lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				test(t, b, newLocker(t, b.Client(t), append(opts, lock.WithoutRenewal(), lock.WithTTL(time.Minute))...))
			})
		})
	}
}

// around reports whether got is want or a little less, because time passes on a real server.
func around(got, want time.Duration) bool { return got <= want && got > want-30*time.Second }

// lockToken is a token that no claim has.
const lockToken = "01234567-89ab-4def-8123-456789abcdef"

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
	must(t, lease.Extend(t.Context(), time.Minute))
	release(t, lease)
	lease = claimUnder(t, locker, "load", time.Minute)
	if _, ok, err := locker.TryAcquire(t.Context(), "load"); ok || err != nil { // by SET, and then by a script
		t.Fatal(ok, err)
	}
	release(t, lease)
	settled := acquire(t, locker, "load")
	must(t, settled.Settle(t.Context(), nil, time.Minute))
	must(t, locker.Forget(t.Context(), locker.StorageKey("load"), "value-"+settled.Token(), false))
}

func closeWithin(t *testing.T, locker *lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wantErr(t, "Close", locker.Close(ctx), nil)
}

type valueKey struct{}

// wantState claims the key and checks the State.
func wantState(t *testing.T, locker *lock.Locker, when string, want lock.State) lock.Claim {
	t.Helper()
	claim, err := locker.Claim(t.Context(), "k", []byte("rival"), 0)
	if err != nil || claim.State != want {
		t.Errorf("%s: %v, %v, want %v", when, claim.State, err, want)
	}
	return claim
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

// byMessage makes a Locker so slow to look by itself that a test can only pass if a message wakes it.
var byMessage = lock.WithRetry(lock.Retry{Min: time.Hour, Max: time.Hour})

// waiting is a call of Wait or Acquire in the background.
type waiting struct {
	claim lock.Claim
	err   error
	took  time.Duration
	done  chan struct{}
}

func inBackground(call func() (lock.Claim, error)) *waiting {
	w := &waiting{done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(w.done)
		w.claim, w.err = call()
		w.took = time.Since(start)
	}()
	return w
}

func waitFor(ctx context.Context, l *lock.Locker, key string) *waiting {
	return inBackground(func() (lock.Claim, error) { return l.Wait(ctx, key) })
}

func acquireFor(ctx context.Context, l *lock.Locker, key string) *waiting {
	return inBackground(func() (lock.Claim, error) {
		lease, err := l.Acquire(ctx, key)
		return lock.Claim{Lease: lease}, err
	})
}

// end returns when the call has.
func (w *waiting) end(t *testing.T) *waiting {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(time.Minute):
		t.Fatal("it still waits")
	}
	return w
}

// awaitSubscribers returns when the key's channel has n subscribers.
func awaitSubscribers(t *testing.T, b redistest.Backend, channel string, n int64) {
	t.Helper()
	client := b.Client(t)
	eventually(t, "the channel has its subscribers", func() bool {
		got, err := client.PubSubNumSub(t.Context(), channel).Result()
		must(t, err)
		return got[channel] == n
	})
}

// awaitMark returns when the claim under the key asks its holder to publish its end.
func awaitMark(t *testing.T, b redistest.Backend, storageKey string) {
	t.Helper()
	awaitSubscribers(t, b, storageKey, 1)
	eventually(t, "the claim is marked as awaited", func() bool {
		stored, ok := b.Raw(t, storageKey)
		return ok && stored[20] == 1
	})
}

// eventually returns when f does.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// granted takes a key with a Locker that has little time for it, in as many claims as it needs.
func granted(t *testing.T, locker *lock.Locker, key string, hold time.Duration) (lease *lock.Lease) {
	t.Helper()
	eventually(t, "a claim is granted", func() bool {
		claim, _ := locker.Claim(t.Context(), key, nil, hold)
		lease = claim.Lease
		return lease != nil
	})
	return lease
}

// fill lets the server refuse everything that needs memory.
func fill(t *testing.T, client *redis.Client) {
	t.Helper()
	must(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
}

// settleInVain settles while the server cannot store anything, or is silent.
func settleInVain(t *testing.T, lease *lock.Lease, value []byte, keep time.Duration) {
	t.Helper()
	if err := lease.Settle(t.Context(), value, keep); !errors.Is(err, lock.ErrPending) {
		t.Fatalf("Settle: %v, want ErrPending", err)
	}
}

// In a synctest bubble time stands still while a goroutine runs, and jumps to the next timer when all are blocked: the
// instants below are exact.

const ttl = 9 * time.Second

// hook is a hook of go-redis around what a client sends, a command or a pipeline.
type hook func(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}
