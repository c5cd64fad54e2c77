package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// senders is a hook that notes which goroutines send commands.
type senders struct {
	mu  sync.Mutex
	ids []string
}

func (*senders) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *senders) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(cmd)
		return next(ctx, cmd)
	}
}

func (s *senders) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.note(cmds[0])
		return next(ctx, cmds)
	}
}

func (s *senders) note(cmd redis.Cmder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch cmd.Name() {
	case "set", "evalsha": // and not what sets up a connection
		s.ids = append(s.ids, goroutineID())
	}
}

func goroutineID() string {
	b := make([]byte, 64)
	return string(bytes.Fields(b[:runtime.Stack(b, false)])[1])
}

// byCaller reports for each command since the last call whether the goroutine that calls byCaller has sent it.
func (s *senders) byCaller() (inline []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.ids {
		inline = append(inline, id == goroutineID())
	}
	s.ids = nil
	return inline
}

func TestInlineOrByAWorker(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	with := func(opt func(*redis.Options)) func(*redis.Options) {
		return func(o *redis.Options) { honorsDeadlines(o); opt(o) }
	}
	for name, c := range map[string]struct {
		client func(*redis.Options)
		limit  time.Duration // of the caller's context; the time for one operation is 20 s
		note   int           // bytes
		value  int           // bytes
		want   []bool        // which of Claim, Extend and Settle the caller sends itself
	}{
		"honors deadlines":        {client: honorsDeadlines, want: []bool{true, false, true}},
		"may miss deadlines":      {client: clientsThat["may miss deadlines"], want: []bool{false, false, false}},
		"no deadline for reads":   {client: with(noReadDeadline), want: []bool{false, false, false}},
		"no deadline for writes":  {client: with(noWriteDeadline), want: []bool{false, false, false}},
		"no limit for reads":      {client: with(noReadLimit), want: []bool{true, false, true}},
		"a limiter":               {client: with(limited), want: []bool{false, false, false}},
		"a credentials provider":  {client: with(withCredentials), want: []bool{false, false, false}},
		"a caller in a hurry":     {client: honorsDeadlines, limit: 19 * time.Second, want: []bool{false, false, true}},
		"a caller with some time": {client: honorsDeadlines, limit: 30 * time.Second, want: []bool{true, false, true}},
		"a claim of 4 KiB":        {client: honorsDeadlines, note: 4<<10 - 53, want: []bool{true, false, true}},
		"a larger claim":          {client: honorsDeadlines, note: 4<<10 - 52, want: []bool{false, false, true}},
		"a value of 4 KiB":        {client: honorsDeadlines, value: 4<<10 - 28, want: []bool{true, false, true}},
		"a larger value":          {client: honorsDeadlines, value: 4<<10 - 27, want: []bool{true, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				client, sent := b.Client(t, c.client), &senders{}
				locker := newLocker(t, client)
				load(t, locker)
				client.AddHook(sent)
				ctx := t.Context()
				if c.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				claim, err := locker.Claim(ctx, "k", make([]byte, c.note), 0)
				if err != nil || claim.State != lock.Granted {
					t.Fatal(claim.State, err)
				}
				if err := claim.Lease.Extend(ctx, time.Minute); err != nil {
					t.Error(err)
				}
				if err := claim.Lease.Settle(ctx, make([]byte, c.value), time.Hour); err != nil {
					t.Error(err)
				}
				if got := sent.byCaller(); !slices.Equal(got, c.want) {
					t.Errorf("sent by their callers: %v, want %v", got, c.want)
				}
			})
		})
	}
}

func noReadDeadline(o *redis.Options)  { o.ReadTimeout, o.WriteTimeout = -2, time.Second }
func noWriteDeadline(o *redis.Options) { o.WriteTimeout = -2 }
func noReadLimit(o *redis.Options)     { o.ReadTimeout = -1 }
func limited(o *redis.Options)         { o.Limiter = lenient{} }
func withCredentials(o *redis.Options) {
	o.CredentialsProvider = func() (username, password string) { return "", "" }
}

// lenient is a Limiter that allows everything.
type lenient struct{}

func (lenient) Allow() error       { return nil }
func (lenient) ReportResult(error) {}

// Before the first reply, the client may be in its handshake, so a worker sends the command. Workers also send retries.
func TestWorkersSendTheFirstCommandAndRetries(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		client, sent := p.Client(t, honorsDeadlines), &senders{}
		locker := newLocker(t, client)
		client.AddHook(sent)
		p.CutBefore(redistest.Nth(3, redistest.Named("SET")))
		for _, want := range [][]bool{{false}, {true}, {true, false}} {
			acquire(t, locker, fmt.Sprint(want))
			if got := sent.byCaller(); !slices.Equal(got, want) {
				t.Errorf("sent by its caller: %v, want %v", got, want)
			}
		}
	})
}

func TestWorkersWaitForReplicas(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	master, _, _ := startReplicated(t)
	client, sent := master.Client(t, honorsDeadlines), &senders{}
	locker := newLocker(t, client, lock.WithReplicas(1, 10*time.Second))
	load(t, locker)
	client.AddHook(sent)
	acquire(t, locker, "k")
	if got := sent.byCaller(); !slices.Equal(got, []bool{false}) {
		t.Errorf("sent by its caller: %v", got)
	}
}

// Commands that wait for others are sent by workers, and so are those that come while these are in flight.
func TestInlineSendersHandBatchesToWorkers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		load(t, newLocker(t, b.Client(t)))
		locker := newLocker(t, p.Client(t, patient, honorsDeadlines), unhurried...)
		acquire(t, locker, "an answer")
		under := occupy(t, p, locker, "under way ")
		seen := watch(p, locker)
		keys := names("k", 40)
		queued := tryAll(t, locker, keys)
		for _, key := range keys {
			if seen.of(key) > 0 {
				t.Errorf("%s was sent while %d are under way", key, maxInFlight)
			}
		}
		under.completeOne(t)
		queued.succeed(t, "TryAcquire")
		under.complete(t)
		closeWithin(t, locker)
	})
}

// A caller that sends inline returns in time, whatever is silent, and a claim that arrives later is released.
//
// fault: black hole, no RST
func TestInlineSenderReturnsInTime(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second // also for load, and for the release of what has arrived, on a busy machine
	wantInTime := func(t *testing.T, locker *lock.Locker, key string) {
		t.Helper()
		begun := time.Now()
		_, _, err := locker.TryAcquire(t.Context(), key)
		took := time.Since(begun)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryAcquire: %v, want DeadlineExceeded", err)
		}
		if took < limit || took > 5*limit {
			t.Errorf("TryAcquire took %v, want %v", took, limit)
		}
	}
	onServer := func(name string, test func(*testing.T, redistest.Backend)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				test(t, b)
			})
		})
	}
	onServer("the reply", func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t, honorsDeadlines), lock.WithOpTimeout(limit))
		load(t, locker)
		silent := p.SwallowReply(onKeys(locker, "k"))
		wantInTime(t, locker, "k")
		silent.Lift()
		p.Heal()
		eventually(t, "what has arrived is released", func() bool {
			_, ok := b.Raw(t, locker.StorageKey("k"))
			return !ok
		})
	})
	onServer("the handshake", func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t, honorsDeadlines, noIdle), lock.WithOpTimeout(limit))
		load(t, locker)
		p.BlackHole()
		wantInTime(t, locker, "k")
		p.Heal()
	})
	onServer("the dial", func(t *testing.T, b redistest.Backend) {
		over := make(chan struct{})
		defer close(over)
		var silent atomic.Bool
		client := b.Client(t, honorsDeadlines, noIdle, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if !silent.Load() {
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
				<-over
				return nil, net.ErrClosed
			}
			o.DialerRetries = 1
		})
		locker := newLocker(t, client, lock.WithOpTimeout(limit))
		load(t, locker)
		silent.Store(true)
		wantInTime(t, locker, "k")
	})
	onServer("others who have all connections", func(t *testing.T, b redistest.Backend) {
		client := b.Client(t, honorsDeadlines, func(o *redis.Options) { o.PoolSize = 1 })
		locker := newLocker(t, client, lock.WithOpTimeout(limit))
		load(t, locker)
		conn := client.Conn()
		if err := conn.Ping(t.Context()).Err(); err != nil { // which takes the only one
			t.Fatal(err)
		}
		wantInTime(t, locker, "k")
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
}

// noIdle makes every command dial.
func noIdle(o *redis.Options) { o.ConnMaxLifetime = time.Nanosecond }

// A caller that sends inline has all of its time for the first try, and what is left of it for retries.
func TestInlineSenderHasAllItsTime(t *testing.T) {
	const limit = 500 * time.Millisecond
	for name, c := range map[string]struct {
		stumbles time.Duration // after which the client says that the connection broke
		sent     int
	}{
		"silence":               {0, 1},
		"a failure and silence": {400 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, honorsDeadlines)
				locker := b.locker(t)
				acquire(t, locker, "an answer")
				acquire(t, locker, "another")
				time.Sleep(limit / 20)
				if c.stumbles > 0 {
					b.direct.AddHook(&stumbling{after: c.stumbles})
				}
				b.silent.Store(true)
				begun, before := time.Now(), b.commands("SET")
				_, _, err := locker.TryAcquire(t.Context(), "k")
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("TryAcquire: %v, want DeadlineExceeded", err)
				}
				if took := time.Since(begun); took != limit {
					t.Errorf("TryAcquire took %v, want %v", took, limit)
				}
				if sent := b.commands("SET") - before; sent != c.sent {
					t.Errorf("SET was sent %d times, want %d", sent, c.sent)
				}
				b.silent.Store(false)
				closeWithin(t, locker)
			})
		})
	}
}

// The deadline that the client sees is, for an inline command, when the caller has to return; for a worker's, a time at
// which no caller waits any more, because a caller that gives up early must not close a connection.
func TestDeadlines(t *testing.T) {
	const limit = 500 * time.Millisecond
	for name, c := range map[string]struct {
		client   func(*redis.Options)
		caller   time.Duration // its own limit, 0 if it has none
		min, max time.Duration // of what the client is told
	}{
		"a caller that sends":             {honorsDeadlines, 0, limit, limit},
		"one with a limit":                {honorsDeadlines, limit - limit/100, limit - limit/100, limit - limit/100},
		"one whose limit comes too early": {honorsDeadlines, limit / 2, limit, limit + limit/10},
		"one that uses a worker, limited": {clientsThat["may miss deadlines"], limit / 2, limit, limit + limit/10},
		"one that uses a worker":          {clientsThat["may miss deadlines"], 0, limit, limit + limit/10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, c.client)
				locker := b.locker(t)
				acquire(t, locker, "an answer")
				told := &deadlines{}
				b.direct.AddHook(told)
				acquire(t, locker, "another")
				time.Sleep(limit / 20) // both begin under one deadline
				begun, ctx := time.Now(), t.Context()
				if c.caller > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.caller)
					defer cancel()
				}
				if _, ok, err := locker.TryAcquire(ctx, "k"); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if got := told.last.Sub(begun); got < c.min || got > c.max {
					t.Errorf("the client is told to return after %v, want %v to %v", got, c.min, c.max)
				}
				closeWithin(t, locker)
			})
		})
	}
}

// deadlines is a hook that keeps the last command's.
type deadlines struct{ last time.Time }

func (*deadlines) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *deadlines) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		d.last, _ = ctx.Deadline()
		return next(ctx, cmd)
	}
}

func (*deadlines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// stumbling is a hook that lets the first command fail.
type stumbling struct {
	after time.Duration
	done  atomic.Bool
}

func (*stumbling) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stumbling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.done.Swap(true) {
			return next(ctx, cmd)
		}
		time.Sleep(s.after)
		cmd.SetErr(io.ErrUnexpectedEOF)
		return io.ErrUnexpectedEOF
	}
}

func (*stumbling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Cancelling a context does not end a call that is sent inline, as the package comment says. Close waits for it.
func TestInlineSenderIsCancelled(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t, honorsDeadlines))
		load(t, locker)
		held := p.HoldReply(onKeys(locker, "k"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var lease *lock.Lease
		call := start(t, locker, 1, func(int) (err error) {
			lease, _, err = locker.TryAcquire(ctx, "k")
			return err
		})
		held.Wait(t)
		cancel()
		soon, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer end()
		if err := locker.Close(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v while a call is under way", err)
		}
		held.Lift()
		if err := call.wait(t, 0); err != nil {
			t.Fatalf("TryAcquire: %v", err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		closeWithin(t, locker)
		wantNoClaims(t, b)
	})
}

// panicking is a hook that panics when a command is about a key.
type panicking struct{ key string }

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == p.key {
			panic("the hook's")
		}
		return next(ctx, cmd)
	}
}

func (panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// net/http recovers from a panic of a hook and goes on, and so must all other calls.
func TestInlineSenderPanics(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		client := b.Client(t, honorsDeadlines)
		locker := newLocker(t, client)
		load(t, locker)
		client.AddHook(panicking{locker.StorageKey("bad")})
		for range 2 * maxInFlight {
			func() {
				defer func() {
					if v := fmt.Sprint(recover()); v != "the hook's" {
						t.Errorf("recovered %s", v)
					}
				}()
				_, _, err := locker.TryAcquire(t.Context(), "bad")
				t.Errorf("TryAcquire returned %v", err)
			}()
		}
		if err := acquire(t, locker, "good").Release(t.Context()); err != nil {
			t.Error(err)
		}
		closeWithin(t, locker)
	})
}
