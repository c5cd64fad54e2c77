package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// seenValues notes what the contexts of commands have under valueKey. It fails commands as long as it has an error.
type seenValues struct {
	mu    sync.Mutex
	seen  []any
	fails error
}

func (v *seenValues) add(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, ctx.Value(valueKey{}))
	return v.fails
}

// take returns what was seen since the last time.
func (v *seenValues) take(fails error) (seen string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, v.seen, v.fails = fmt.Sprint(v.seen), nil, fails
	return seen
}

func (v *seenValues) hook(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error {
	if err := v.add(ctx); err != nil {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
	return next(ctx)
}

// A command for a caller carries the values of the caller's context. What the Locker does by itself has the base context.
func TestWithBaseContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, v := newBubble(t), &seenValues{}
		load(t, b.locker(t))
		b.direct.AddHook(hook(v.hook))
		base := lock.WithBaseContext(context.WithValue(t.Context(), valueKey{}, "base"))
		locker, caller := b.locker(t, base, lock.WithTTL(ttl)), context.WithValue(t.Context(), valueKey{}, "caller")
		lease, _, err := locker.TryAcquire(caller, "k")
		if got := v.take(nil); err != nil || got != "[caller]" || lease.Context().Value(valueKey{}) != "caller" {
			t.Errorf("TryAcquire: %s, %v; the lease has %v", got, err, lease.Context().Value(valueKey{}))
		}
		time.Sleep(ttl / 2)
		if got := v.take(nil); got != "[base]" {
			t.Errorf("a renewal: %s", got)
		}
		waits := waitFor(caller, locker, "k")
		synctest.Wait()
		if got := v.take(nil); strings.Contains(got, "caller") || locker.Stats().Subscriptions != 1 || locker.Stats().Waiters != 1 {
			t.Errorf("a poll and a subscription: %s, %+v", got, locker.Stats())
		}
		for what, end := range map[string]func(*lock.Lease) error{
			"Settle":  func(l *lock.Lease) error { return l.Settle(caller, []byte("v"), time.Hour) },
			"Release": func(l *lock.Lease) error { return l.Release(caller) },
		} {
			fails := acquire(t, locker, what)
			v.take(errors.New("the hook's"))
			if err := end(fails); err == nil {
				t.Errorf("%s: no error", what)
			}
			v.take(nil)
			time.Sleep(time.Second)
			if got := v.take(nil); strings.Contains(got, "caller") || !strings.Contains(got, "base") {
				t.Errorf("%s, tried again: %s", what, got)
			}
		}
		locker.Go(func(ctx context.Context) { _ = v.add(ctx) })
		synctest.Wait()
		if got := v.take(nil); got != "[base]" {
			t.Errorf("Go: %s", got)
		}
		release(t, lease)
		if waits.free(t); locker.Stats().Leases+locker.Stats().Waiters != 0 {
			t.Errorf("%+v, want none left", locker.Stats())
		}
	})
}
