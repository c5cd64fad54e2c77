package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// The server is away for longer than a lease, and comes back empty. The values that wait are stored, and claims of other keys
// do not wait for them.
//
// fault: Redis away for longer than a lease, response pending, default mode
func TestPendingValuesAreStoredWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	const n, size = 303, 200 << 10
	server := redistest.Start(t)
	locker := newLocker(t, server.Client(t, honorsDeadlines), lock.WithTTL(time.Second), lock.WithOpTimeout(500*time.Millisecond))
	var leases []*lock.Lease
	for i := range n {
		leases = append(leases, granted(t, locker, fmt.Sprint(i), 0))
	}
	server.Kill(t)
	begun := time.Now()
	var all sync.WaitGroup
	for _, l := range leases {
		all.Go(func() { settleInVain(t, l, make([]byte, size), time.Hour) })
	}
	all.Wait()
	time.Sleep(redistest.Rounds(3*time.Second, 25*time.Second) - time.Since(begun)) // the pauses between the tries grow
	server.Restart(t)
	others := 0
	for i := 0; locker.Stats().Pending > 0; i++ {
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%+v", locker.Stats())
		}
		if l, _, err := locker.TryAcquire(t.Context(), fmt.Sprint("other ", i)); err == nil {
			others++
			_ = l.Release(t.Context()) // on a slow machine the answer may be late: then it is released in the background
		}
	}
	if s := locker.Stats(); s.SettledLate != n || s.SettlesGivenUp != 0 || others == 0 {
		t.Errorf("%+v; %d claims of other keys", s, others)
	}
	eventually(t, "only the values are left", func() bool { return len(server.Keys(t)) == n })
}

// stateBy returns what a method of a Locker finds under the key k.
var stateBy = map[string]func(context.Context, *lock.Locker) (lock.Claim, error){
	"Claim": func(ctx context.Context, l *lock.Locker) (lock.Claim, error) { return l.Claim(ctx, "k", nil, 0) },
	"Claim under a hold": func(ctx context.Context, l *lock.Locker) (lock.Claim, error) {
		return l.Claim(ctx, "k", nil, time.Hour)
	},
	"Look": func(ctx context.Context, l *lock.Locker) (lock.Claim, error) { return l.Look(ctx, "k") },
	"Wait": func(ctx context.Context, l *lock.Locker) (claim lock.Claim, err error) {
		claim, err = l.Wait(ctx, "k")
		if errors.Is(err, lock.ErrHeld) && !errors.Is(err, lock.ErrSettled) {
			claim.State, err = lock.Held, nil
		}
		return claim, err
	},
}

// A caller that claims or looks at a key whose value is pending in this Locker gets the value, or what another has written.
//
// fault: Redis away for longer than a lease, response pending, default mode
func TestKeyWithAPendingValue(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		found func(t *testing.T, b *bubble, key string) // changes what Redis has
		want  lock.State                                // 0: an error
	}{
		"our own claim": {func(*testing.T, *bubble, string) {}, lock.Settled},
		"nothing":       {func(_ *testing.T, b *bubble, key string) { b.server.Del(key) }, lock.Settled},
		"another's": {func(t *testing.T, b *bubble, key string) {
			b.server.Del(key)
			acquire(t, b.locker(t), "k")
		}, lock.Held},
		"no answer": {func(_ *testing.T, b *bubble, _ string) { b.full.Store(true) }, 0}, // to a Settle
	} {
		for method, state := range stateBy {
			for _, hold := range []time.Duration{0, time.Hour} {
				t.Run(fmt.Sprint(name, ", ", method, ", hold ", hold), bubbled(func(t *testing.T, b *bubble) {
					locker := b.locker(t, lock.WithTTL(ttl))
					load(t, locker)
					lease := claimUnder(t, locker, "k", hold)
					b.full.Store(true)
					settleInVain(t, lease, []byte("v"), time.Hour)
					b.full.Store(false)
					test.found(t, b, locker.StorageKey("k"))

					ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
					defer cancel()
					claim, err := state(ctx, locker)
					switch {
					case test.want == 0:
						if !errors.Is(err, lock.ErrSettled) || !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%v, %v, want ErrSettled and DeadlineExceeded", claim.State, err)
						}
						b.full.Store(false)
					case err != nil || claim.State != test.want:
						t.Errorf("%v, %v, want %v", claim.State, err, test.want)
					case test.want == lock.Settled && string(claim.Value) != "v":
						t.Errorf("the value %q, want v", claim.Value)
					}
					time.Sleep(2 * time.Second)
					if n := locker.Stats().Pending; n != 0 {
						t.Errorf("%d values are pending", n)
					}
					closeWithin(t, locker)
				}))
			}
		}
	}
}

// A claim is granted because the key is gone, and while its reply is on its way, the Settle of the earlier lease fails.
func TestGrantedWhileAValueBecomesPending(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]bool{"the server answers": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, tr := newBubble(t), &trouble{}
				locker := troubled(t, b, tr, lock.WithTTL(ttl))
				lease := acquire(t, locker, "k")
				b.server.Del(locker.StorageKey("k"))
				b.full.Store(true)
				settled := make(chan struct{})
				go func() {
					defer close(settled)
					settleInVain(t, lease, []byte("v"), time.Hour)
				}()
				time.Sleep(400 * time.Millisecond)
				tr.with = append(tr.with, func(ctx context.Context, _ redis.Cmder, next func(context.Context) error) error {
					err := next(ctx)
					<-settled
					b.full.Store(!back)
					return err
				})
				claim, err := locker.Claim(t.Context(), "k", nil, 0)
				switch {
				case !back && !errors.Is(err, lock.ErrSettled):
					t.Errorf("Claim: %v, %v, want ErrSettled", claim.State, err)
				case back && (err != nil || claim.State != lock.Settled || string(claim.Value) != "v"):
					t.Errorf("Claim: %v, %q, %v, want the value", claim.State, claim.Value, err)
				}
				b.full.Store(false)
				time.Sleep(ttl)
				claim = wantState(t, b.locker(t), "at the end", lock.Settled)
				if string(claim.Value) != "v" {
					t.Errorf("the value %q, want v", claim.Value)
				}
				closeWithin(t, locker)
			})
		})
	}
}
