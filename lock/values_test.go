package lock_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// valuesSeen is a hook that passes on what the contexts of commands, pipelines and new connections have under valueKey.
type valuesSeen struct {
	lone, pipelines, dials chan any

	mu   sync.Mutex
	fail func(redis.Cmder) error // nil for none
}

// watchValues returns a Locker with a base context on a client that has the hook, once that is connected.
func watchValues(t *testing.T, opts ...lock.Option) (*valuesSeen, *lock.Locker) {
	t.Helper()
	b := redistest.Mini(t)
	load(t, newLocker(t, b.Client(t)))
	client := b.Client(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	v := &valuesSeen{make(chan any, 1000), make(chan any, 1000), make(chan any, 1000), sync.Mutex{}, nil}
	client.AddHook(v)
	base := lock.WithBaseContext(context.WithValue(t.Context(), valueKey{}, "base"))
	return v, newLocker(t, client, append([]lock.Option{base}, opts...)...)
}

func (v *valuesSeen) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		v.dials <- ctx.Value(valueKey{})
		return next(ctx, network, addr)
	}
}

func (v *valuesSeen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isOurs(cmd) {
			return next(ctx, cmd)
		}
		v.lone <- ctx.Value(valueKey{})
		v.mu.Lock()
		fail := v.fail
		v.mu.Unlock()
		if fail != nil {
			if err := fail(cmd); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (v *valuesSeen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if isOurs(cmds[0]) {
			v.pipelines <- ctx.Value(valueKey{})
		}
		return next(ctx, cmds)
	}
}

// failing makes every command fail until the next call, with nil.
func (v *valuesSeen) failing(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fail = func(redis.Cmder) error { return err }
}

func wantValue(t *testing.T, what string, seen <-chan any, want any) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Errorf("%s: the value is %v, want %v", what, got, want)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s: no command", what)
	}
}

// asCaller returns a context with the value that a caller's commands have.
func asCaller(t *testing.T) context.Context {
	return context.WithValue(t.Context(), valueKey{}, "caller")
}

func TestRenewalsHaveTheBaseContext(t *testing.T) {
	t.Parallel()
	v, locker := watchValues(t, lock.WithTTL(3*time.Second))
	lease, _, err := locker.TryAcquire(asCaller(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, "TryAcquire", v.lone, "caller")
	wantValue(t, "renewal", v.lone, "base")
	if got := lease.Context().Value(valueKey{}); got != "caller" {
		t.Errorf("the lease's context has %v, want the caller's", got)
	}
	if err := lease.Release(asCaller(t)); err != nil {
		t.Error(err)
	}
}

func TestLateSettlesAndReleasesHaveTheBaseContext(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(context.Context, *lock.Lease) error{
		"Settle":  func(ctx context.Context, l *lock.Lease) error { return l.Settle(ctx, []byte("v"), time.Hour) },
		"Release": func(ctx context.Context, l *lock.Lease) error { return l.Release(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			v, locker := watchValues(t)
			lease, _, err := locker.TryAcquire(asCaller(t), "k")
			if err != nil {
				t.Fatal(err)
			}
			wantValue(t, "TryAcquire", v.lone, "caller")
			v.failing(errors.New("the hook's"))
			if err := end(asCaller(t), lease); err == nil {
				t.Fatal("no error")
			}
			v.failing(nil)
			tries := 0
			for got := range v.lone {
				if got == "base" {
					break
				}
				tries++
			}
			if tries == 0 || tries > 4 {
				t.Errorf("%d tries of the caller, want up to four, and then the base context", tries)
			}
		})
	}
}

func TestBatchesHaveTheBaseContext(t *testing.T) {
	t.Parallel()
	v, locker := watchValues(t, unhurried...)
	first := start(t, locker, 1, func(int) error { _, _, err := locker.TryAcquire(asCaller(t), "first"); return err })
	first.succeed(t, "TryAcquire")
	entered, open := make(chan struct{}, 100), make(chan struct{})
	v.mu.Lock()
	v.fail = func(redis.Cmder) error { entered <- struct{}{}; <-open; return nil }
	v.mu.Unlock()
	keys := names("k", maxInFlight+20)
	alone := start(t, locker, maxInFlight, func(i int) error { _, _, err := locker.TryAcquire(asCaller(t), keys[i]); return err })
	for range maxInFlight {
		<-entered
	}
	together := start(t, locker, 20, func(i int) error {
		_, _, err := locker.TryAcquire(asCaller(t), keys[maxInFlight+i])
		return err
	})
	for locker.Stats().Queued < 20 {
		time.Sleep(time.Millisecond)
	}
	if s := locker.Stats(); s.InFlight != maxInFlight || s.Batches != maxInFlight+1 || s.Commands != maxInFlight+1 {
		t.Errorf("%+v, want %d in flight", s, maxInFlight)
	}
	close(open)
	alone.succeed(t, "TryAcquire")
	together.succeed(t, "TryAcquire")
	wantValue(t, "a batch", v.pipelines, "base")
	s := locker.Stats()
	want := maxInFlight + 21
	if s.Queued != 0 || s.InFlight != 0 || int(s.Commands) != want || s.Batches >= s.Commands || s.Leases != want {
		t.Errorf("%+v, want %d commands in fewer batches", s, want)
	}
}

func TestSubscriptionsHaveTheBaseContext(t *testing.T) {
	t.Parallel()
	v, locker := watchValues(t)
	lease, _, err := locker.TryAcquire(asCaller(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	waits := start(t, locker, 1, func(int) error { _, err := locker.Wait(asCaller(t), "k"); return err })
	wantValue(t, "the connection of a subscription", v.dials, "base")
	for locker.Stats().Subscriptions < 1 {
		time.Sleep(time.Millisecond)
	}
	if s := locker.Stats(); s.Waiters != 1 || s.Leases != 1 {
		t.Errorf("%+v, want a waiter, a subscription and a lease", s)
	}
	if err := lease.Release(asCaller(t)); err != nil {
		t.Error(err)
	}
	waits.succeed(t, "Wait")
	if s := locker.Stats(); s.Waiters != 0 || s.Leases != 0 || s.Lost != 0 {
		t.Errorf("%+v, want none left", s)
	}
}
