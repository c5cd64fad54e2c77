package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
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
		s.note()
		return next(ctx, cmd)
	}
}

func (s *senders) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.note()
		return next(ctx, cmds)
	}
}

func (s *senders) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, goroutineID())
}

// here tells for each command since the last call whether the goroutine that calls has sent it.
func (s *senders) here() (here []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.ids {
		here = append(here, id == goroutineID())
	}
	s.ids = nil
	return here
}

func TestWhoSends(t *testing.T) {
	t.Parallel()
	soon := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 19*time.Second) // the time for one operation is 20
		t.Cleanup(cancel)
		return ctx
	}
	for name, c := range map[string]struct {
		opt     func(*redis.Options)
		context func(*testing.T) context.Context
		here    bool
	}{
		"punctual":               {punctual, (*testing.T).Context, true},
		"not punctual":           {clientsThat["may be late"], (*testing.T).Context, false},
		"no deadline for reads":  {func(o *redis.Options) { punctual(o); o.ReadTimeout = -2 }, (*testing.T).Context, false},
		"no deadline for writes": {func(o *redis.Options) { punctual(o); o.WriteTimeout = -2 }, (*testing.T).Context, false},
		"reads have no limit":    {func(o *redis.Options) { punctual(o); o.ReadTimeout = -1 }, (*testing.T).Context, true},
		"an early deadline":      {punctual, soon, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				client, sent := b.Client(t, c.opt), &senders{}
				locker := newLocker(t, client)
				load(t, locker)
				client.AddHook(sent)
				lease, ok, err := locker.TryAcquire(c.context(t), "k")
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				if here := sent.here(); !slices.Equal(here, []bool{c.here}) {
					t.Errorf("TryAcquire was sent here: %v, want %v", here, c.here)
				}
				if err := lease.Extend(c.context(t), time.Minute); err != nil {
					t.Fatal(err)
				}
				if here := sent.here(); !slices.Equal(here, []bool{c.here}) {
					t.Errorf("Extend was sent here: %v, want %v", here, c.here)
				}
			})
		})
	}
}

// Whoever waits for others is sent by others, and so is who comes when they are under way.
func TestCallersThatSendHandOver(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		load(t, newLocker(t, b.Client(t)))
		locker := newLocker(t, p.Client(t, patient, punctual), unhurried...)
		under := occupy(t, p, locker, "under way ")
		seen := watch(p, locker)
		keys := names("k", 40)
		queued := tryAll(t, locker, keys)
		for _, key := range keys {
			if seen.of(key) > 0 {
				t.Errorf("%s was sent while %d are under way", key, maxFlights)
			}
		}
		under.landOne(t)
		queued.succeed(t, "TryAcquire")
		under.land(t)
		closeWithin(t, locker)
	})
}

// A caller that sends itself is back in time, whatever is silent, and what arrives later is released.
//
// fault: black hole, no RST
func TestSendersOwnTime(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	wantInTime := func(t *testing.T, locker *lock.Locker, key string) {
		t.Helper()
		begun := time.Now()
		_, _, err := locker.TryAcquire(t.Context(), key)
		took := time.Since(begun)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryAcquire: %v, want DeadlineExceeded", err)
		}
		if took < limit || took > 20*limit {
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
		locker := newLocker(t, p.Client(t, punctual), lock.WithOpTimeout(limit))
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
		locker := newLocker(t, p.Client(t, punctual), lock.WithOpTimeout(limit))
		p.BlackHole()
		wantInTime(t, locker, "k")
		p.Heal()
	})
	onServer("the dial", func(t *testing.T, b redistest.Backend) {
		over := make(chan struct{})
		defer close(over)
		client := b.Client(t, punctual, func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				<-over
				return nil, net.ErrClosed
			}
			o.DialerRetries = 1
		})
		wantInTime(t, newLocker(t, client, lock.WithOpTimeout(limit)), "k")
	})
	onServer("others who have all connections", func(t *testing.T, b redistest.Backend) {
		client := b.Client(t, punctual, func(o *redis.Options) { o.PoolSize = 1 })
		conn := client.Conn()
		if err := conn.Ping(t.Context()).Err(); err != nil { // which takes the only one
			t.Fatal(err)
		}
		wantInTime(t, newLocker(t, client, lock.WithOpTimeout(limit)), "k")
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
}

// As New says: a cancellation does not end what the caller sends itself.
func TestSenderIsCancelled(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t, punctual))
		held := p.HoldReply(onKeys(locker, "k"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var lease *lock.Lease
		call := start(t, 1, func(int) (err error) {
			lease, _, err = locker.TryAcquire(ctx, "k")
			return err
		})
		held.Wait(t)
		cancel()
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

// net/http recovers from a panic and goes on, and so must everybody else.
func TestSenderPanics(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		client := b.Client(t, punctual)
		locker := newLocker(t, client)
		client.AddHook(panicking{locker.StorageKey("bad")})
		for range 2 * maxFlights {
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
