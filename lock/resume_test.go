package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

func resume(t *testing.T, locker *lock.Locker, key, token string) *lock.Lease {
	t.Helper()
	lease, err := locker.Resume(t.Context(), key, token)
	if err != nil {
		t.Fatalf("Resume: %v", err)
	}
	return lease
}

// wantResumed checks that the key has the claim of lease.
func wantResumed(t *testing.T, locker *lock.Locker, key string, lease *lock.Lease) {
	t.Helper()
	info := inspect(t, locker, key, lock.Held)
	if info.Token != lease.Token() || info.Fence != lease.Fence() || !info.IsLock || !around(info.LeaseLeft, time.Hour) {
		t.Errorf("the key has %+v, want the token %s, the fence %d", info, lease.Token(), lease.Fence())
	}
}

// Whatever the old lease does, the new one has the key, and its end wakes who has waited since the old one's time.
func TestResume(t *testing.T) {
	t.Parallel()
	for what, late := range map[string]func(*lock.Locker, *lock.Lease) error{
		"Extend":  func(_ *lock.Locker, old *lock.Lease) error { return old.Extend(context.Background(), time.Minute) },
		"Release": func(_ *lock.Locker, old *lock.Lease) error { return old.Release(context.Background()) },
		"Settle":  func(_ *lock.Locker, old *lock.Lease) error { return old.Settle(context.Background(), nil, time.Hour) },
		"Resume": func(l *lock.Locker, old *lock.Lease) error {
			_, err := l.Resume(context.Background(), "k", old.Token())
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
				opts := []lock.Option{lock.WithTTL(time.Hour), byMessage}
				first, err := locker.Acquire(lock.NewOwnerContext(t.Context(), "server"), "k")
				if err != nil {
					t.Fatal(err)
				}
				if first.Fence() > 0 {
					opts = append(opts, lock.WithFencing())
				}
				other := newLocker(t, b.Client(t), opts...)
				waits := acquireFor(t.Context(), other, "k")
				awaitSubscribers(t, b, locker.StorageKey("k"), 1)

				second, err := other.Resume(lock.NewOwnerContext(t.Context(), "worker"), "k", first.Token())
				if err != nil {
					t.Fatal(err)
				}
				if second.Token() == first.Token() || (second.Fence() > first.Fence()) != (first.Fence() > 0) {
					t.Errorf("token %s after %s, fence %d after %d", second.Token(), first.Token(), second.Fence(), first.Fence())
				}
				if err := late(locker, first); !errors.Is(err, lock.ErrLost) {
					t.Errorf("%s with the old token: %v, want ErrLost", what, err)
				}
				wantResumed(t, locker, "k", second)
				if info := inspect(t, locker, "k", lock.Held); info.Owner != "worker" {
					t.Errorf("owner %q", info.Owner)
				}
				third := resume(t, locker, "k", second.Token())
				if err := second.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
					t.Errorf("Release: %v, want ErrLost", err)
				}
				if err := third.Release(t.Context()); err != nil {
					t.Errorf("Release of the last lease: %v", err)
				}
				if waits.end(t); waits.err != nil || third.Fence() > 0 && waits.claim.Lease.Fence() <= third.Fence() {
					t.Errorf("the waiter: %v", waits.err)
				}
				if err := waits.claim.Lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Of several calls of Resume with one token, the first to reach Redis gets the lease, and no other.
func TestResumesRace(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker, other := newLocker(t, b.Client(t)), newLocker(t, b.Client(t))
		for range redistest.Rounds(20, 200) {
			old := acquire(t, locker, "k")
			won := make(chan *lock.Lease, 8)
			for i := range cap(won) {
				go func() {
					lease, err := []*lock.Locker{locker, other}[i%2].Resume(t.Context(), "k", old.Token())
					if (lease == nil) != errors.Is(err, lock.ErrLost) {
						t.Errorf("%v, %v", lease, err)
					}
					won <- lease
				}()
			}
			n := 0
			for range cap(won) {
				if lease := <-won; lease != nil {
					n++
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
			if n != 1 {
				t.Fatalf("resumed %d times", n)
			}
			if err := old.Release(t.Context()); err != nil { // the key is free
				t.Error(err)
			}
		}
	})
}

// What is not a live lease of a lock stays as it is.
func TestResumeRefuses(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		for what, test := range map[string]struct {
			leave func(locker *lock.Locker) (token string)
			want  error
		}{
			"nothing": {func(*lock.Locker) string { return uuid.NewString() }, lock.ErrLost},
			"no token": {func(l *lock.Locker) string {
				acquire(t, l, "k")
				return "x"
			}, lock.ErrLost},
			"another's lock": {func(l *lock.Locker) string {
				acquire(t, l, "k")
				return uuid.NewString()
			}, lock.ErrLost},
			"a released lock": {func(l *lock.Locker) string {
				lease := acquire(t, l, "k")
				if err := lease.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				return lease.Token()
			}, lock.ErrLost},
			"a settled lock": {func(l *lock.Locker) string {
				lease := acquire(t, l, "k")
				if err := lease.Settle(t.Context(), nil, time.Hour); err != nil {
					t.Fatal(err)
				}
				return lease.Token()
			}, lock.ErrLost},
			"a value": {func(l *lock.Locker) string {
				leave(t, l, b, "k", lock.Settled)
				return inspect(t, l, "k", lock.Settled).Token
			}, lock.ErrLost},
			"a claim":              {func(l *lock.Locker) string { return leave(t, l, b, "k", lock.Held).Token() }, lock.ErrNotLock},
			"a claim without note": {func(l *lock.Locker) string { return claimUnder(t, l, "k", 0).Token() }, lock.ErrNotLock},
			"a claim under a hold": {func(l *lock.Locker) string { return claimUnder(t, l, "k", time.Hour).Token() }, lock.ErrNotLock},
			"an abandoned claim":   {func(l *lock.Locker) string { return leave(t, l, b, "k", lock.Abandoned).Token() }, lock.ErrNotLock},
			"an older lock": {func(l *lock.Locker) string {
				first := newFirstLease(t, client, l.StorageKey("k"))
				first.claim(time.Hour)
				return first.token.String()
			}, lock.ErrNotLock},
			"a list": {func(l *lock.Locker) string {
				client.LPush(t.Context(), l.StorageKey("k"), "x")
				return uuid.NewString()
			}, lock.ErrForeign},
			"a text": {func(l *lock.Locker) string {
				client.Set(t.Context(), l.StorageKey("k"), "x", time.Hour)
				return uuid.NewString()
			}, lock.ErrForeign},
			"half a claim": {func(l *lock.Locker) string {
				client.Set(t.Context(), l.StorageKey("k"), claimStart+someToken, time.Hour)
				return uuid.UUID([]byte(someToken)).String()
			}, lock.ErrForeign},
		} {
			t.Run(what, func(t *testing.T) {
				locker := lock.New(client, what, lock.WithOpTimeout(20*time.Second), lock.WithoutRenewal())
				defer closeWithin(t, locker)
				token := test.leave(locker)
				dump := func() string { return client.Dump(t.Context(), locker.StorageKey("k")).Val() }
				before := dump()
				lease, err := locker.Resume(t.Context(), "k", token)
				if lease != nil || !errors.Is(err, test.want) {
					t.Errorf("%v, %v, want %v", lease, err, test.want)
				}
				if strings.Contains(fmt.Sprint(err), token) && token != "x" {
					t.Errorf("the error has the token: %v", err)
				}
				if after := dump(); after != before {
					t.Errorf("the key has changed: %q, before: %q", after, before)
				}
			})
		}
		locker := newLocker(t, client)
		bad := lock.NewOwnerContext(t.Context(), "\n")
		lease := acquire(t, locker, "k")
		if _, err := locker.Resume(bad, "k", lease.Token()); err == nil || errors.Is(err, lock.ErrLost) {
			t.Errorf("a wrong owner: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// fault: a planned hand-over looks like a lease that Redis has lost. Expected: it does not count as lost if the holder has
// called Abandon before, which the doc of Resume recommends; else it does, as this doc says.
func TestResumeCountsAsLost(t *testing.T) {
	t.Parallel()
	for what, lost := range map[string]uint64{"abandoned": 0, "renewed": 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				giver, taker := newLocker(t, b.client), newLocker(t, b.client)
				given := acquire(t, giver, "k")
				if lost == 0 {
					given.Abandon()
				}
				taken := resume(t, taker, "k", given.Token())
				<-given.Context().Done()
				if err := given.Err(); !errors.Is(err, lock.ErrLost) || giver.Stats().Lost != lost || taker.Stats().Lost != 0 {
					t.Errorf("%v; the giver counts %d as lost, want %d; the taker %d", err, giver.Stats().Lost, lost, taker.Stats().Lost)
				}
				if err := taken.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A value that is pending in this process is stored, and its lease is not resumed.
//
// fault: a Settle gets no reply, and the lease's token is given away
func TestResumeOfAPendingValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := newLocker(t, b.client, lock.WithOpTimeout(time.Second))
		lease := acquire(t, locker, "k")
		b.full.Store(true)
		if err := lease.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, lock.ErrPending) {
			t.Fatal(err)
		}
		if _, err := locker.Resume(t.Context(), "k", lease.Token()); !errors.Is(err, lock.ErrSettled) {
			t.Errorf("while Redis does not answer: %v, want ErrSettled", err)
		}
		b.full.Store(false)
		if _, err := locker.Resume(t.Context(), "k", lease.Token()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
		if met, err := locker.Look(t.Context(), "k"); string(met.Value) != "v" || err != nil {
			t.Errorf("%v %q, %v", met.State, met.Value, err)
		}
	})
}

func tokenBytes(lease *lock.Lease) []byte {
	token := uuid.MustParse(lease.Token())
	return token[:]
}

// The handles of an old lease end together. Resume never joins a lease, and the new one can be joined.
func TestResumeAndReentry(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		old := acquire(t, locker, "k")
		ctx := lock.NewContext(t.Context(), old)
		joined, err := locker.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		lease, err := locker.Resume(ctx, "k", joined.Token())
		if err != nil || lease.Token() == old.Token() {
			t.Fatal(lease, err)
		}
		if err := old.Extend(t.Context(), time.Minute); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
		for _, handle := range []*lock.Lease{old, joined} {
			if !errors.Is(context.Cause(handle.Context()), lock.ErrLost) {
				t.Errorf("a handle of the old lease: %v", handle.Err())
			}
		}
		if _, ok, err := locker.TryAcquire(ctx, "k"); ok || err != nil {
			t.Errorf("joined the old lease: %t, %v", ok, err)
		}
		again := acquire(t, locker, "other")
		if joined, ok, err := locker.TryAcquire(lock.NewContext(t.Context(), lease), "k"); !ok || err != nil || joined.Token() != lease.Token() {
			t.Errorf("%t, %v", ok, err)
		} else if err := errors.Join(joined.Release(t.Context()), lease.Release(t.Context()), again.Release(t.Context())); err != nil {
			t.Error(err)
		}
		inspect(t, locker, "k", lock.Free)
	})
}

// A process acquires a lock, sends the token to another, and is killed, or is stopped for longer than the lease. The key
// is never free in between.
//
// fault: process killed between the token's sending and Resume
// fault: client SIGSTOP longer than the TTL, its lease resumed, then SIGCONT
func TestLeaseIsHandedOver(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for name, test := range map[string]struct {
		stop, after func(*testing.T, *redistest.Process)
	}{
		"killed": {
			func(t *testing.T, p *redistest.Process) { p.Kill(t) },
			func(*testing.T, *redistest.Process) {},
		},
		"stopped": {
			func(t *testing.T, p *redistest.Process) { p.Pause(t) },
			func(t *testing.T, p *redistest.Process) {
				p.Send(t, "look")
				p.Send(t, "settle the old one's")
				p.Resume(t)
				if got := p.Line(t) + " " + p.Line(t); got != "lost lost" {
					t.Errorf("the old holder, on waking: %s", got)
				}
				if err := p.Wait(t); err != nil {
					t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rival := newLocker(t, server.Client(t), lock.WithFencing())
			load(t, newLocker(t, server.Client(t)))
			giver := redistest.Run(t, "holder", server.Addr(), ttl.String())
			var fence, next int64
			if _, err := fmt.Sscan(giver.Line(t), &fence); err != nil {
				t.Fatal(err)
			}
			token := inspect(t, rival, "k", lock.Held).Token
			taker := redistest.Run(t, "taker", server.Addr(), ttl.String())
			if taker.Line(t) != "ready" {
				t.Fatal("the taker is not ready")
			}
			waits := acquireFor(t.Context(), rival, "k")
			test.stop(t, giver)
			taker.Send(t, token)
			if _, err := fmt.Sscan(taker.Line(t), &next); err != nil || next <= fence {
				t.Fatalf("fence %d after %d, %v", next, fence, err)
			}
			select { // longer than the old lease would have lasted
			case <-waits.done:
				t.Fatalf("a rival has got the key: %v", waits.err)
			case <-time.After(2 * ttl):
			}
			test.after(t, giver)
			taker.Send(t, token)
			if got := taker.Line(t); got != "lost" {
				t.Errorf("a second Resume: %s", got)
			}
			taker.Send(t, "release")
			if got := taker.Line(t); got != "released" {
				t.Error(got)
			}
			if waits.end(t); waits.err != nil || waits.claim.Lease.Fence() <= next {
				t.Errorf("the rival: %v", waits.err)
			}
			if err := errors.Join(waits.claim.Lease.Release(t.Context()), taker.Wait(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// taker is a client process that resumes the lease on k of each token that it is sent, says the fence, and releases it.
func taker(args []string, in io.Reader, out io.Writer) error {
	ttl, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: args[0]})
	defer client.Close()
	locker := lock.New(client, "test", lock.WithTTL(ttl), lock.WithOpTimeout(20*time.Second), lock.WithFencing())
	ctx := context.Background()
	if err := locker.Check(ctx); err != nil && !errors.Is(err, lock.ErrEviction) {
		return err
	}
	fmt.Fprintln(out, "ready")
	var lease *lock.Lease
	for told := bufio.NewScanner(in); told.Scan(); {
		if told.Text() == "release" {
			if err := lease.Release(ctx); err != nil {
				return err
			}
			fmt.Fprintln(out, "released")
			continue
		}
		resumed, err := locker.Resume(ctx, "k", told.Text())
		if err != nil {
			fmt.Fprintln(out, outcome(err))
			continue
		}
		lease = resumed
		fmt.Fprintln(out, lease.Fence())
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return locker.Close(ctx)
}
