package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// What is sent to a server that stands still for a part of a lease is answered afterwards, and nothing is lost.
//
// fault: redis-server SIGSTOP, shorter than the lease
func TestServerStopsForAWhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker, rival := newLocker(t, server.Client(t, patient), lock.WithTTL(time.Minute)), newLocker(t, server.Client(t, patient))
	load(t, rival)
	lease, results := acquire(t, locker, "k"), make(chan error, 2)
	until := lease.Until()
	server.Pause(t)
	go func() { results <- lease.Extend(context.Background(), time.Hour) }()
	go func() {
		_, ok, err := rival.TryAcquire(context.Background(), "k")
		if ok {
			err = errors.New("a rival has the key")
		}
		results <- err
	}()
	eventually(t, "both are sent", func() bool { return locker.Stats().InFlight == 1 && rival.Stats().InFlight == 1 })
	if got := lease.Until(); got != until {
		t.Errorf("Until has moved by %v without an answer", got.Sub(until))
	}
	server.Resume(t)
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if lease.Err() != nil || lease.Until() == until {
		t.Errorf("the lease: %v, until %v", lease.Err(), lease.Until())
	}
	release(t, lease)
	wantNoClaims(t, server)
}

// Every call returns when its time is over. What has to be stored is stored afterwards.
//
// fault: redis-server SIGSTOP, longer
func TestSilentServer(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]func(*redis.Options){
		"default client":     func(*redis.Options) {},
		"client without end": func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = -1, 10 },
		"one try":            redistest.OneTry,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			locker := newLocker(t, server.Client(t, opt), lock.WithOpTimeout(2*time.Second), lock.WithTTL(time.Minute))
			load(t, newLocker(t, server.Client(t)))
			released, settled := granted(t, locker, "released", 0), granted(t, locker, "settled", 0)
			server.Pause(t)
			for what, do := range map[string]func() error{
				"TryAcquire": func() error { _, _, err := locker.TryAcquire(t.Context(), "k"); return err },
				"Forget":     func() error { return locker.Forget(t.Context(), locker.StorageKey("k"), lockToken, false) },
				"Release":    func() error { return released.Release(t.Context()) },
				"Settle":     func() error { return settled.Settle(t.Context(), []byte("v"), time.Hour) },
			} {
				if err := do(); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v, want DeadlineExceeded", what, err)
				}
			}
			server.Resume(t)
			<-settled.Context().Done()
			claim, err := newLocker(t, server.Client(t)).Look(t.Context(), "settled")
			if err != nil || string(claim.Value) != "v" {
				t.Errorf("after the silence the key holds %q, %v, want v", claim.Value, err)
			}
			closeWithin(t, locker)
		})
	}
}

// Two holders work at once until the first learns of its loss, and the fence counter is lost too.
//
// fault: redis-server kill -9, restarted empty
func TestServerRestartsEmpty(t *testing.T) {
	t.Parallel()
	r, server := &register{}, redistest.Start(t)
	locker := newLocker(t, server.Client(t), lock.WithTTL(3*time.Second), lock.WithFencing())
	rival := newLocker(t, server.Client(t), lock.WithFencing())
	lands, refused := acquire(t, locker, "lands"), acquire(t, locker, "refused")
	if !r.write(refused.Fence(), 1) {
		t.Error("the holder's write is refused")
	}
	server.Kill(t)
	server.Restart(t)
	next, err := rival.Acquire(t.Context(), "refused")
	must(t, err)
	if !r.write(next.Fence(), 2) || r.write(refused.Fence(), 3) {
		t.Errorf("after %d the fence is %d", refused.Fence(), next.Fence())
	}
	for _, lease := range []*lock.Lease{lands, refused} {
		<-lease.Context().Done()
		wantErr(t, "cause", context.Cause(lease.Context()), lock.ErrLost)
	}
	wantErr(t, "Settle where nobody has claimed", lands.Settle(t.Context(), []byte("v"), time.Hour), nil)
	wantErr(t, "Settle over another's claim", refused.Settle(t.Context(), []byte("v"), time.Hour), lock.ErrLost)
	r.check(t)
}

// fault: FLUSHALL, DEL, eviction of the key
func TestClaimIsRemoved(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(context.Context, *redis.Client, string) error{
		"FLUSHALL": func(ctx context.Context, c *redis.Client, _ string) error { return c.FlushAll(ctx).Err() },
		"DEL":      func(ctx context.Context, c *redis.Client, key string) error { return c.Del(ctx, key).Err() },
		"eviction": func(ctx context.Context, c *redis.Client, key string) error {
			for n := 0; c.Exists(ctx, key).Val() == 1; n++ {
				err := c.Set(ctx, fmt.Sprint("ballast", n), strings.Repeat("x", 100_000), 0).Err()
				if err != nil && !redis.HasErrorPrefix(err, "OOM") {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "volatile-ttl")
			locker := newLocker(t, server.Client(t), lock.WithTTL(3*time.Second))
			lease := acquire(t, locker, "k")
			must(t, remove(t.Context(), server.Client(t), locker.StorageKey("k")))
			<-lease.Context().Done()
			wantErr(t, "cause", context.Cause(lease.Context()), lock.ErrLost)
			release(t, lease)
		})
	}
}

// fault: maxmemory reached, noeviction
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]lock.Option{"by SET": nil, "by script": {lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			locker, rival := newLocker(t, server.Client(t), opts...), newLocker(t, server.Client(t), opts...)
			dead := newLocker(t, server.Client(t), lock.WithoutRenewal())
			load(t, locker)
			leave(t, dead, server, "settled", lock.Settled)
			leave(t, dead, server, "abandoned", lock.Abandoned)
			released, holder := acquire(t, locker, "released"), claimUnder(t, locker, "mine", 0)
			info := inspect(t, rival, "abandoned", lock.Abandoned)
			before := server.Keys(t)
			fill(t, server.Client(t))
			for what, do := range map[string]func() error{
				"Claim":           func() error { _, err := rival.Claim(t.Context(), "new", nil, 0); return err },
				"SettleAbandoned": func() error { return overrides["settle"](t.Context(), rival, info) },
				"Settle":          func() error { return holder.Settle(t.Context(), []byte("late"), time.Hour) },
			} {
				if err := do(); err == nil || !strings.Contains(err.Error(), "OOM") {
					t.Errorf("%s: %v, want the server's OOM", what, err)
				}
			}
			if got := server.Keys(t); fmt.Sprint(got) != fmt.Sprint(before) {
				t.Errorf("keys %q, want %q", got, before)
			}
			for key, want := range map[string]lock.State{
				"mine": lock.Held, "settled": lock.Settled, "abandoned": lock.Abandoned,
			} {
				if claim, err := rival.Claim(t.Context(), key, nil, 0); err != nil || claim.State != want {
					t.Errorf("%s: %v, %v, want %v", key, claim.State, err, want)
				}
			}
			for what, err := range map[string]error{
				"Extend":  holder.Extend(t.Context(), time.Minute),
				"Release": released.Release(t.Context()),
				"Forget":  overrides["forget"](t.Context(), rival, info),
			} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			must(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "0").Err())
			<-holder.Context().Done()
			if claim, err := rival.Look(t.Context(), "mine"); err != nil || string(claim.Value) != "late" {
				t.Errorf("when there is room: %v, %q, %v, want late", claim.State, claim.Value, err)
			}
		})
	}
}

// foreigners put under a key what no Locker of this version wrote.
var foreigners = map[string]func(ctx context.Context, c *redis.Client, key string) error{
	"text":            foreignText("foreign"),
	"empty":           foreignText(""),
	"a newer claim":   foreignText("OGc\x02" + someToken + "\x00" + noFence + noHold + someTime + "note"),
	"a claim's head":  foreignText(claimStart + someToken),
	"a claim, cut":    foreignText(claimStart + someToken + "\x00" + noFence + noHold + someTime[:7]),
	"a wrong fence":   foreignText(claimStart + someToken + "\x00" + "+000000000000001" + noHold + someTime),
	"too long a hold": foreignText(claimStart + someToken + "\x00" + noFence + "\xff\xff\xff\xff\xff\xff\xff\xff" + someTime),
	"a value, cut":    foreignText(valueStart + someToken + someTime[:4]),
	"list": func(ctx context.Context, c *redis.Client, key string) error {
		return c.RPush(ctx, key, "foreign").Err()
	},
	"hash": func(ctx context.Context, c *redis.Client, key string) error { return c.HSet(ctx, key, "f", "v").Err() },
}

func foreignText(text string) func(context.Context, *redis.Client, string) error {
	return func(ctx context.Context, c *redis.Client, key string) error { return c.Set(ctx, key, text, 0).Err() }
}

// fault: a foreign value or type under the key
func TestForeignValuesAreLeftAlone(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		ctx, client, key := t.Context(), b.Client(t), locker.StorageKey("k")
		value := func([]byte) ([]byte, error) { return nil, errors.New("it was asked for a value") }
		for name, put := range foreigners {
			b.FlushAll(t)
			lease := acquire(t, locker, "k")
			must(t, errors.Join(client.Del(ctx, key).Err(), put(ctx, client, key)))
			before := client.Dump(ctx, key).Val()
			for what, do := range map[string]func() error{
				"TryAcquire":      func() error { _, _, err := locker.TryAcquire(ctx, "k"); return err },
				"Acquire":         func() error { _, err := locker.Acquire(ctx, "k"); return err },
				"Claim":           func() error { _, err := locker.Claim(ctx, "k", nil, time.Hour); return err },
				"Wait":            func() error { _, err := locker.Wait(ctx, "k"); return err },
				"Look":            func() error { _, err := locker.Look(ctx, "k"); return err },
				"Resume":          func() error { _, err := locker.Resume(ctx, "k", lease.Token()); return err },
				"Inspect":         func() error { _, err := locker.Inspect(ctx, key); return err },
				"Forget":          func() error { return locker.Forget(ctx, key, lease.Token(), true) },
				"SettleAbandoned": func() error { return locker.SettleAbandoned(ctx, key, lease.Token(), value, time.Hour) },
			} {
				if err := do(); !errors.Is(err, lock.ErrForeign) {
					t.Errorf("%s of a %s: %v, want ErrForeign", what, name, err)
				}
			}
			for what, do := range map[string]func() error{
				"Extend": func() error { return lease.Extend(ctx, time.Hour) },
				"Settle": func() error { return lease.Settle(ctx, nil, time.Hour) },
			} {
				if err := do(); !errors.Is(err, lock.ErrLost) {
					t.Errorf("%s over a %s: %v, want ErrLost", what, name, err)
				}
			}
			if after := client.Dump(ctx, key).Val(); after != before || client.PTTL(ctx, key).Val() >= 0 {
				t.Errorf("the %s is now %q, want it untouched", name, after)
			}
		}
	})
}
