package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// wantKeys checks which of the keys exist.
func wantKeys(t *testing.T, b redistest.Backend, locker *lock.Locker, want bool, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, ok := b.Raw(t, locker.StorageKey(key)); ok != want {
			t.Errorf("there is a key %s: %v, want %v", key, ok, want)
		}
	}
}

// fault: the caller's ctx cancelled before, during, after
func TestCallerAbandonsAQueuedCommand(t *testing.T) {
	t.Parallel()
	onProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
		seen := watch(p, locker)
		f := occupy(t, p, locker, "under way ")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		queued := start(t, locker, 20, func(i int) error {
			if i%2 == 0 {
				_, _, err := locker.TryAcquire(ctx, fmt.Sprint("abandoned ", i))
				return err
			}
			_, ok, err := locker.TryAcquire(t.Context(), fmt.Sprint("stays ", i))
			if err == nil && !ok {
				err = errHeld
			}
			return err
		})
		cancel()
		for i := 0; i < 20; i += 2 {
			if err := queued.wait(t, i); !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that gave up: %v, want Canceled", err)
			}
		}
		f.complete(t)
		for i := 1; i < 20; i += 2 {
			if err := queued.wait(t, i); err != nil {
				t.Errorf("who stays: %v", err)
			}
		}
		closeWithin(t, locker)
		for i := range 20 {
			stays, abandoned := fmt.Sprint("stays ", i), fmt.Sprint("abandoned ", i)
			if n := seen.of(abandoned); n != 0 {
				t.Errorf("%s was sent %d times, want never", abandoned, n)
			}
			wantKeys(t, b, locker, false, abandoned)
			if i%2 == 1 {
				wantKeys(t, b, locker, true, stays)
			}
		}
	})
}

// fault: claim arrives after the caller gave up
// fault: the caller's ctx cancelled before, during, after
func TestCallerAbandonsASentCommand(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	for name, hold := range map[string]func(*redistest.Proxy, redistest.Match) *redistest.Rule{
		"before it arrives": (*redistest.Proxy).HoldRequest,
		"before it returns": (*redistest.Proxy).HoldReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
				keys := names("k", 12) // at least half of them are in the first batch
				abandoned, others := []int{1, 3}, []int{0, 2, 4, 5}
				f := occupy(t, p, locker, "under way ")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				batch := start(t, locker, len(keys), func(i int) error {
					ctx := ctx
					if !slices.Contains(abandoned, i) {
						ctx = t.Context()
					}
					_, ok, err := locker.TryAcquire(ctx, keys[i])
					if err == nil && !ok {
						err = errHeld
					}
					return err
				})
				held := hold(p, redistest.Nth(1, onKeys(locker, keys...)))
				f.completeOne(t)
				held.Wait(t)
				cancel()
				for _, i := range abandoned {
					if err := batch.wait(t, i); !errors.Is(err, context.Canceled) {
						t.Errorf("the caller that gave up: %v, want Canceled", err)
					}
				}
				f.complete(t)
				eventually(t, "releases were tried", func() bool {
					return strings.Count(fmt.Sprint(p.Commands()), "EVALSHA") == len(abandoned)
				})
				for _, i := range others {
					if len(batch.done[i]) > 0 {
						t.Errorf("who stays: %v, though the answer is held", <-batch.done[i])
					}
				}
				held.Lift()
				for i := range keys {
					if slices.Contains(abandoned, i) {
						continue
					}
					if err := batch.wait(t, i); err != nil {
						t.Errorf("who stays: %v", err)
					}
				}
				closeWithin(t, locker)
				for i, key := range keys {
					wantKeys(t, b, locker, !slices.Contains(abandoned, i), key)
				}
			})
		})
	}
}

// silence makes as many connections fall silent as there may be batches in flight, and returns when their callers have
// given up.
func silence(t *testing.T, p *redistest.Proxy, locker *lock.Locker, prefix string, limit time.Duration) (keys []string) {
	t.Helper()
	keys = names(prefix, maxInFlight)
	silent := p.SwallowReply(redistest.Named("SET"))
	begun := time.Now()
	l := tryAll(t, locker, keys)
	for range keys {
		silent.Wait(t)
	}
	silent.Lift()
	for i := range keys {
		if err := l.wait(t, i); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryAcquire: %v, want DeadlineExceeded", err)
		}
	}
	if took := time.Since(begun); took < limit || took > limit+5*time.Second { // a busy machine's
		t.Errorf("TryAcquire took %v, want %v", took, limit)
	}
	return keys
}

// Silent connections do not delay calls that come when their time is over, and the claims that were written to them are
// released over other connections.
//
// fault: a connection falls silent
func TestSilentBatches(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Second
	for name, opt := range map[string]func(*redis.Options){
		"default client":     func(*redis.Options) {},
		"client without end": func(o *redis.Options) { o.ReadTimeout = -1 },
		"pool of 10":         func(o *redis.Options) { o.ReadTimeout, o.PoolSize = -1, 10 },
		"heeds contexts":     honorsDeadlines,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				p := redistest.NewProxy(t, b.Addr())
				locker := newLocker(t, p.Client(t, opt), lock.WithOpTimeout(limit))
				load(t, newLocker(t, b.Client(t)))
				for round := range redistest.Rounds(1, 2) {
					keys := silence(t, p, locker, fmt.Sprint("silent ", round, " "), limit)
					for _, key := range names(fmt.Sprint("k", round, " "), 20) {
						begun := time.Now()
						if err := acquire(t, locker, key).Release(t.Context()); err != nil {
							t.Errorf("Release: %v", err)
						}
						if took := time.Since(begun); took > limit*4/5 {
							t.Errorf("acquire and release took %v", took)
						}
					}
					eventually(t, "what has arrived is released", func() bool {
						return !slices.ContainsFunc(keys, func(key string) bool {
							_, ok := b.Raw(t, locker.StorageKey(key))
							return ok
						})
					})
				}
				p.Heal()
				closeWithin(t, locker)
				wantNoClaims(t, b)
			})
		})
	}
}

// Commands that are queued behind silent batches are sent in time.
//
// fault: a connection falls silent
func TestQueueBehindSilentBatches(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Second
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		load(t, newLocker(t, b.Client(t)))
		locker := newLocker(t, p.Client(t, patient), lock.WithOpTimeout(limit))
		lost := names("silent ", maxInFlight)
		silent := p.SwallowReply(onKeys(locker, lost...))
		under := tryAll(t, locker, lost)
		for range maxInFlight {
			silent.Wait(t)
		}
		silent.Lift()
		tryAll(t, locker, names("k", 40)).succeed(t, "behind silent batches: TryAcquire")
		for i := range lost {
			if err := under.wait(t, i); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryAcquire: %v, want DeadlineExceeded", err)
			}
		}
		p.Heal()
		closeWithin(t, locker)
		wantKeys(t, b, locker, false, lost...)
	})
}

// fault: a foreign value or type under the key
func TestForeignTypeWithinABatch(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
		keys, seen := names("k", 12), watch(p, locker)
		foreign := []string{keys[0], keys[5], keys[11]}
		for _, key := range foreign {
			if err := b.Client(t).HSet(t.Context(), locker.StorageKey(key), "f", "v").Err(); err != nil {
				t.Fatal(err)
			}
		}
		f := occupy(t, p, locker, "under way ")
		l := tryAll(t, locker, keys)
		f.complete(t)
		wantOneFailure(t, l, seen, keys, foreign, func(err error) bool { return errors.Is(err, lock.ErrForeign) })
	})
}

// wantOneFailure checks that the calls for some keys fail, and the others take theirs with the first try.
func wantOneFailure(t *testing.T, l *leases, seen *sightings, keys, failing []string, isThat func(error) bool) {
	t.Helper()
	for i, key := range keys {
		err := l.wait(t, i)
		switch {
		case slices.Contains(failing, key):
			if !isThat(err) || l.of[i] != nil {
				t.Errorf("%s: %v, want its own failure", key, err)
			}
		case err != nil:
			t.Errorf("%s: %v, want none of the others' failure", key, err)
		case seen.of(key) != 1:
			t.Errorf("%s was sent %d times, want once", key, seen.of(key))
		}
	}
}

func TestACLWithinABatch(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr())
	locker := newLocker(t, p.Client(t, patient), unhurried...)
	keys, seen := names("k", 12), watch(p, locker)
	failing := []string{keys[3], keys[4]}
	f := occupy(t, p, locker, "under way ")
	l := tryAll(t, locker, keys)
	rules := []any{"resetkeys"}
	for _, key := range keys {
		if !slices.Contains(failing, key) {
			rules = append(rules, "~"+locker.StorageKey(key))
		}
	}
	permit(t, server, rules...)
	f.complete(t)
	wantOneFailure(t, l, seen, keys, failing, func(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") })
	permit(t, server, "allkeys")
}

// fault: SCRIPT FLUSH
func TestScriptsAreFlushedUnderABatch(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(context.Context, *lock.Lease) error{
		"Release": func(ctx context.Context, l *lock.Lease) error { return l.Release(ctx) },
		"Settle":  func(ctx context.Context, l *lock.Lease) error { return l.Settle(ctx, nil, time.Hour) },
		"Extend":  func(ctx context.Context, l *lock.Lease) error { return l.Extend(ctx, time.Minute) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			onProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
				keys := names("k", 12)
				leases := acquireAll(t, locker, keys)
				f := occupy(t, p, locker, "under way ")
				calls := start(t, locker, len(keys), func(i int) error { return do(t.Context(), leases[i]) })
				if err := b.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				seen := watch(p, locker)
				f.completeOne(t)
				defer f.complete(t)
				calls.succeed(t, what)
				n := 0
				for _, key := range keys {
					n += seen.of(key)
					if seen.of(key) > 2 {
						t.Errorf("%s was sent %d times, want no more than by digest, and with its source", key, seen.of(key))
					}
				}
				if n < len(keys)+2 {
					t.Errorf("%d keys were sent %d times: no batch has met a server that has forgotten: %q", len(keys), n, p.Commands())
				}
			})
		})
	}
}

// A server that is full still executes commands that make room.
//
// fault: maxmemory reached, noeviction
func TestServerIsFullUnderABatch(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr())
	locker := newLocker(t, p.Client(t, patient), unhurried...)
	load(t, locker)
	released, claimed := names("released ", 6), names("claimed ", 6)
	leases := acquireAll(t, locker, released)
	f := occupy(t, p, locker, "under way ")
	all := start(t, locker, 12, func(i int) error {
		if i%2 == 0 {
			return leases[i/2].Release(t.Context())
		}
		_, _, err := locker.TryAcquire(t.Context(), claimed[i/2])
		return err
	})
	fill(t, server.Client(t))
	seen := watch(p, locker)
	f.complete(t)
	for i := range 12 {
		err := all.wait(t, i)
		if i%2 == 0 && err != nil {
			t.Errorf("Release: %v", err)
		}
		if i%2 == 1 && !redis.HasErrorPrefix(err, "OOM") {
			t.Errorf("TryAcquire: %v, want the server's OOM", err)
		}
	}
	for _, key := range released {
		if n := seen.of(key); n != 1 {
			t.Errorf("%s was sent %d times, want once", key, n)
		}
	}
	wantKeys(t, server, locker, false, append(released, claimed...)...)
}

// fault: reply to the claim dropped
func TestReplyToClaimIsLostWithinABatch(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
		keys, rival := names("k", 10), newLocker(t, b.Client(t))
		f := occupy(t, p, locker, "under way ")
		l := tryAll(t, locker, keys)
		seen, lost := watch(p, locker), p.DropReply(redistest.Nth(5, onKeys(locker, keys...)))
		f.completeOne(t)
		defer f.complete(t)
		lost.Wait(t)
		l.succeed(t, "TryAcquire")
		wantFirstSentOnce(t, seen, keys)
		for _, key := range keys {
			if _, ok, err := rival.TryAcquire(t.Context(), key); ok || err != nil {
				t.Errorf("a rival: %v, %v, want false, nil", ok, err)
			}
		}
		for i, lease := range l.of {
			if err := lease.Settle(t.Context(), []byte(keys[i]), time.Hour); err != nil {
				t.Errorf("Settle: %v: the lease is not the one that stands", err)
			}
		}
	})
}

// wantFirstSentOnce checks what was sent before the fifth command of a batch, whose reply was dropped: those replies
// have come.
func wantFirstSentOnce(t *testing.T, seen *sightings, keys []string) {
	t.Helper()
	first, n := seen.first(4), 0
	for _, key := range keys {
		sent := seen.of(key)
		n += sent
		if slices.Contains(first, seen.locker.StorageKey(key)) && sent != 1 {
			t.Errorf("%s was sent %d times, though its reply had come", key, sent)
		}
	}
	if n > 4+2*(len(keys)-4) {
		t.Errorf("%d keys were sent %d times in all, none more than twice", len(keys), n)
	}
}

// fault: reply to Settle dropped
func TestReplyToSettleIsLostWithinABatch(t *testing.T) {
	t.Parallel()
	onProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
		keys, rival := names("k", 10), newLocker(t, b.Client(t))
		leases := acquireAll(t, locker, keys)
		f := occupy(t, p, locker, "under way ")
		settles := start(t, locker, len(keys), func(i int) error {
			return leases[i].Settle(t.Context(), []byte(keys[i]), time.Hour)
		})
		seen, lost := watch(p, locker), p.DropReply(redistest.Nth(5, onKeys(locker, keys...)))
		f.completeOne(t)
		defer f.complete(t)
		lost.Wait(t)
		settles.succeed(t, "Settle")
		wantFirstSentOnce(t, seen, keys)
		for i, key := range keys {
			if claim, err := rival.Claim(t.Context(), key, nil, 0); err != nil || string(claim.Value) != key {
				t.Errorf("%s holds %q, %v", key, claim.Value, err)
			}
			if err := leases[i].Settle(t.Context(), []byte("again"), time.Hour); !errors.Is(err, lock.ErrLost) {
				t.Errorf("another Settle: %v, want ErrLost", err)
			}
		}
	})
}

// fault: reply to Release dropped
func TestReplyToReleaseIsLostWithinABatch(t *testing.T) {
	t.Parallel()
	onProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
		keys, rival := names("k", 10), newLocker(t, b.Client(t))
		leases := acquireAll(t, locker, keys)
		f := occupy(t, p, locker, "under way ")
		releases := start(t, locker, len(keys), func(i int) error { return leases[i].Release(t.Context()) })
		seen, lost := watch(p, locker), p.DropReply(redistest.Nth(5, onKeys(locker, keys...)))
		again := p.HoldRequest(secondOf(locker, keys))
		f.completeOne(t)
		defer f.complete(t)
		key := nameOf(locker, keys, lost.Wait(t))
		next := acquire(t, rival, key) // the key was free, before the second try came
		again.Lift()
		releases.succeed(t, "Release")
		wantFirstSentOnce(t, seen, keys)
		if err := next.Release(t.Context()); err != nil {
			t.Errorf("Release of the successor: %v", err)
		}
		wantKeys(t, b, locker, false, keys...)
	})
}

// secondOf matches each but the first command about a key.
func secondOf(locker *lock.Locker, keys []string) redistest.Match {
	match, seen := onKeys(locker, keys...), map[string]int{}
	return func(c redistest.Command) bool {
		if !match(c) {
			return false
		}
		seen[keyOf(c)]++
		return seen[keyOf(c)] > 1
	}
}

func nameOf(locker *lock.Locker, keys []string, c redistest.Command) string {
	return keys[slices.IndexFunc(keys, func(key string) bool { return locker.StorageKey(key) == keyOf(c) })]
}

// A Settle that is retried does not overwrite a later claim or value.
func TestSettleOfABatchComesBackLate(t *testing.T) {
	t.Parallel()
	onProxied(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
		keys, rival := names("k", 10), newLocker(t, b.Client(t))
		leases := acquireAll(t, locker, keys)
		f := occupy(t, p, locker, "under way ")
		settles := start(t, locker, len(keys), func(i int) error { return leases[i].Settle(t.Context(), []byte("v"), time.Hour) })
		lost, again := p.DropReply(redistest.Nth(2, onKeys(locker, keys...))), p.HoldRequest(secondOf(locker, keys))
		f.completeOne(t)
		defer f.complete(t)
		takenOver := nameOf(locker, keys, lost.Wait(t))
		if err := forget(t.Context(), rival, takenOver); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, rival, takenOver)
		again.Lift()
		for i, key := range keys {
			switch err := settles.wait(t, i); {
			case key == takenOver && !errors.Is(err, lock.ErrLost):
				t.Errorf("Settle over another's claim: %v, want ErrLost", err)
			case key != takenOver && err != nil:
				t.Errorf("Settle: %v", err)
			}
		}
		if err := next.Release(t.Context()); err != nil {
			t.Errorf("Release of the successor: %v", err)
		}
	})
}
