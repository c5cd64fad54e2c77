package lock_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// A lease that has ended may be ended again in another way after its timer has gone to another lease.
func TestWhatHasEndedLeavesOthersAlone(t *testing.T) {
	for name, end := range map[string]func(context.Context, *lock.Lease) error{
		"Release": func(ctx context.Context, l *lock.Lease) error { return l.Release(ctx) },
		"Settle":  func(ctx context.Context, l *lock.Lease) error { return l.Settle(ctx, nil, time.Hour) },
		"Abandon": func(_ context.Context, l *lock.Lease) error { l.Abandon(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(time.Second))
				lost := acquire(t, locker, "lost")
				if err := forget(t.Context(), locker, "lost"); err != nil {
					t.Fatal(err)
				}
				if err := lost.Extend(t.Context(), time.Second); err != lock.ErrLost {
					t.Fatalf("Extend: %v, want ErrLost", err)
				}
				first := acquire(t, locker, "first")
				if err := end(t.Context(), lost); err != nil {
					t.Error(err)
				}
				second := acquire(t, locker, "second")
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for _, lease := range []*lock.Lease{first, second} {
					if lease.Context().Err() != nil || !lease.Until().After(time.Now()) {
						t.Errorf("a lease is not renewed any more: until %v, %v", lease.Until(), lease.Context().Err())
					}
				}
			})
		})
	}
}

// A timer that fires while its lease ends is not used again.
func TestEndAtTheInstantOfARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := newLocker(t, redistest.NewDirect(t, cannedOptions("")).Client)
		for range 50 {
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					lease := acquire(t, locker, fmt.Sprint(i))
					time.Sleep(10 * time.Second / 3) // what the renewal waits for as well
					lease.Abandon()
					lease.Abandon()
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
	})
}

// A second try is a command of its own: the reply to the first one is not taken for its reply.
func TestSecondTryIsBoundedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t)
		if err := b.client.Ping(t.Context()).Err(); err != nil { // to connect, which sets a hook of its own
			t.Fatal(err)
		}
		b.server.SetError("LOADING Redis is loading the dataset in memory")
		go func() {
			time.Sleep(time.Nanosecond) // the first try is over, and the pause before the second is not
			b.server.SetError("")
			b.server.Server().SetPreHook(b.hook)
			b.silent.Store(true)
		}()
		start := time.Now()
		if _, err := locker.Claim(t.Context(), "k", nil, 0); err == nil {
			t.Error("no error though nobody has answered")
		}
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// dated is a context with a deadline that does not end.
type dated struct{ context.Context }

func (dated) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func TestLeaseHasNoDeadlineOfItsCaller(t *testing.T) {
	lease := claimWith(t, dated{context.Background()})
	if deadline, ok := lease.Context().Deadline(); ok {
		t.Errorf("it is %v", deadline)
	}
}

// A lease's context is derived directly from a context that is never done.
func TestLeaseHasTheValuesOfItsCaller(t *testing.T) {
	type key struct{}
	for _, ctx := range []context.Context{context.Background(), t.Context()} {
		lease := claimWith(t, context.WithValue(ctx, key{}, "value"))
		if got := lease.Context().Value(key{}); got != "value" {
			t.Errorf("got %v", got)
		}
	}
}

func claimWith(t *testing.T, ctx context.Context) *lock.Lease {
	t.Helper()
	claim, err := cannedLocker(t, "").Claim(ctx, "k", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return claim.Lease
}

// The cause of the caller's context may be an error reply to another command, which says nothing about this key.
func TestCauseOfTheCallersEndIsNotTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		lease := acquire(t, b.locker(t), "k")
		if err := b.client.LPush(t.Context(), "list", 1).Err(); err != nil {
			t.Fatal(err)
		}
		wrong := b.client.Get(t.Context(), "list").Err()
		ctx, cancel := context.WithCancelCause(t.Context())
		b.lag.Store(int64(50 * time.Millisecond))
		time.AfterFunc(10*time.Millisecond, func() { cancel(wrong) }) // as errgroup does
		err := lease.Extend(ctx, time.Minute)
		if err == nil || err == lock.ErrLost || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("Extend: %v, want the cause", err)
		}
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the lease is over: %v", context.Cause(lease.Context()))
		}
	})
}

// printing is a hook that prints commands, as those for tracing do.
type printing struct{ printed *[]string }

func (printing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p printing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*p.printed = append(*p.printed, fmt.Sprint(cmd.Args()...))
		return next(ctx, cmd)
	}
}

func (printing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestHooksCanPrintCommands(t *testing.T) {
	client := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return &canned{}, nil },
	})
	t.Cleanup(func() { _ = client.Close() })
	locker := newLocker(t, client)
	var printed []string
	client.AddHook(printing{&printed})
	claim, err := locker.Claim(t.Context(), "k", []byte("\xff"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := claim.Lease.Settle(t.Context(), []byte("\xff"), time.Hour); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(printed, "\n")
	if !utf8.ValidString(text) || strings.Count(text, claim.Key) != 2 {
		t.Errorf("printed %q", text)
	}
}
