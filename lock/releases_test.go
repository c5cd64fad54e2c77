package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// No key is taken although nothing ran: what happens to claims that no run needs, under a hold and without one.

const hold = 24 * time.Hour

// holds are those of the claims: with a hold, and without one for a lease of an hour.
var holds = map[string]struct {
	hold time.Duration
	opts []lock.Option
}{
	"a hold": {hold, nil}, "no hold": {0, []lock.Option{lock.WithTTL(time.Hour)}},
}

// executed returns how many scripts the server has executed, and how many SETs.
func executed(t *testing.T, s *redistest.Server) (scripts, sets int) {
	t.Helper()
	for _, line := range strings.Split(s.Client(t).Info(t.Context(), "commandstats").Val(), "\r\n") {
		name, rest, _ := strings.Cut(line, ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(calls)
		switch name {
		case "cmdstat_eval", "cmdstat_evalsha":
			scripts += n
		case "cmdstat_set":
			sets += n
		}
	}
	return scripts, sets
}

// impatientLocker returns a Locker with little time for one operation. Its Close may fail: it has that little time too.
func impatientLocker(t *testing.T, client redis.UniversalClient, limit time.Duration, opts ...lock.Option) *lock.Locker {
	t.Helper()
	locker := lock.New(client, "test", append(opts, lock.WithOpTimeout(limit))...)
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil && !errors.Is(err, lock.ErrUnreleased) {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

// claimInVain claims keys at the same time, and wants each claim to get no reply.
func claimInVain(t *testing.T, locker *lock.Locker, hold time.Duration, keys ...string) {
	t.Helper()
	var all sync.WaitGroup
	for _, key := range keys {
		all.Go(func() {
			if claim, err := locker.Claim(t.Context(), key, nil, hold); err == nil {
				t.Errorf("Claim: %v, want an error", claim.State)
			}
		})
	}
	all.Wait()
}

// The server stands still for longer than an operation, with 300 claims in its buffers. A Locker has up to four commands
// in flight that it sends alone.
//
// fault: server stopped for longer than an operation, with 300 claims in its buffers, then continued
func TestClaimsInAServerThatStandsStill(t *testing.T) {
	t.Parallel()
	for name, opt := range clientsThat {
		for claims, of := range holds {
			t.Run("client that "+name+", "+claims, func(t *testing.T) {
				t.Parallel()
				testClaimsInAServerThatStandsStill(t, opt, of.hold, of.opts)
			})
		}
	}
}

func testClaimsInAServerThatStandsStill(t *testing.T, opt func(*redis.Options), hold time.Duration, opts []lock.Option) {
	server := redistest.Start(t)
	load(t, newLocker(t, server.Client(t)))
	var lockers []*lock.Locker
	for range 75 {
		client := server.Client(t, opt)
		locker := impatientLocker(t, client, 500*time.Millisecond, opts...)
		if err := acquire(t, newLocker(t, client), "warm").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		connect(t, client, maxInFlight)
		lockers = append(lockers, locker)
	}
	_, sets := executed(t, server)

	server.Pause(t)
	var all sync.WaitGroup
	for i, locker := range lockers {
		for n := range maxInFlight {
			all.Go(func() { claimInVain(t, locker, hold, fmt.Sprint(i, " ", n)) })
		}
	}
	all.Wait()
	server.Resume(t)
	unsure := 0
	for _, locker := range lockers {
		unsure += locker.Stats().Releases
	}
	scripts, _ := executed(t, server)
	eventually(t, "each claim is released twice", func() bool {
		now, _ := executed(t, server)
		return now >= scripts+2*unsure
	})
	_, now := executed(t, server)
	if t.Logf("%d claims without a reply, %d of them were executed", unsure, now-sets); now-sets < 200 {
		t.Errorf("%d claims were executed, want about 300", now-sets)
	}
	if keys := server.Keys(t); len(keys) > 0 {
		t.Errorf("%d keys are taken though nothing ran: %q", len(keys), keys)
	}
}

// connect opens n connections of a client.
func connect(t *testing.T, client *redis.Client, n int) {
	t.Helper()
	for range n {
		conn := client.Conn()
		defer func() { _ = conn.Close() }()
		if err := conn.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// No reply arrives for a second, though the server executes what it gets.
//
// fault: claim arrives after the caller gave up
func TestRepliesToClaimsUnderAHoldAreLost(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, _ *lock.Locker) {
		client := p.Client(t)
		locker := impatientLocker(t, client, 250*time.Millisecond)
		if err := acquire(t, newLocker(t, client), "warm").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost := p.SwallowReply(redistest.Any())
		for range 4 {
			claimInVain(t, locker, hold, names("key ", 25)...)
		}
		if lost.Hits() == 0 || len(b.Keys(t)) == 0 {
			t.Errorf("%d replies were lost, keys %q", lost.Hits(), b.Keys(t))
		}
		lost.Lift()
		p.Heal()
		eventually(t, "all keys are free", func() bool { return len(b.Keys(t)) == 0 })
	})
}

// A claim arrives when its release was answered already.
//
// fault: claim arrives after the caller gave up
func TestClaimUnderAHoldArrivesAfterItsRelease(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		impatient := func(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond } // no late reply is waited for
		locker := impatientLocker(t, p.Client(t, impatient), 5*time.Second)
		held, released := p.HoldRequest(redistest.Named("SET")), p.HoldReply(redistest.Named("EVALSHA"))
		claimInVain(t, locker, hold, "k")
		held.Wait(t)
		released.Wait(t)
		released.Lift()
		eventually(t, "no reply is waited for", func() bool { return locker.Stats().InFlight == 0 })
		held.Lift()
		key := locker.StorageKey("k")
		eventually(t, "the claim has arrived", func() bool { _, ok := b.Raw(t, key); return ok })
		eventually(t, "the key is free", func() bool { _, ok := b.Raw(t, key); return !ok })
		if s := locker.Stats(); s.Releases != 1 || s.ReleasesGivenUp != 0 {
			t.Errorf("%+v, want one claim that is released again later", s)
		}
	})
}

// lateSet is a SET that does not arrive at first.
type lateSet struct{ args atomic.Pointer[[]any] }

// keep is a hook function that keeps a SET from arriving. It fails with err or, if that is nil, when its caller gives up.
func (l *lateSet) keep(err error) func(context.Context, redis.Cmder, redis.ProcessHook) error {
	return func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		args, err := cmd.Args(), err
		l.args.Store(&args)
		if err == nil {
			<-ctx.Done()
			err = ctx.Err()
		}
		cmd.SetErr(err)
		return err
	}
}

// troubled returns a Locker whose SETs pass the hook.
func troubled(t *testing.T, b *bubble, tr *trouble, opts ...lock.Option) *lock.Locker {
	t.Helper()
	direct := redistest.NewDirect(t, b.client.Options())
	locker := newLocker(t, direct.Client, append(opts, lock.WithOpTimeout(500*time.Millisecond))...)
	load(t, locker)
	direct.AddHook(tr)
	return locker
}

// arrive lets the server execute a SET that was kept, and wants it to take the key.
func (l *lateSet) arrive(t *testing.T, b *bubble, key string) {
	t.Helper()
	_ = b.client.Do(t.Context(), *l.args.Load()...).Err() // redis.Nil: nothing was there before
	if !b.server.Exists(key) {
		t.Fatal("the late claim has not taken the key")
	}
}

// fault: claim arrives after the caller gave up
func TestClaimArrivesLate(t *testing.T) {
	t.Parallel()
	for claims, of := range holds {
		for after, until := range map[time.Duration]time.Duration{ // after the caller gave up
			time.Second: 3 * time.Second, 3 * time.Second: 16 * time.Second, 60 * time.Second: 3 * time.Minute,
			9 * time.Minute: 11 * time.Minute,
		} {
			t.Run(claims+", "+after.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b, tr := newBubble(t), &trouble{}
					locker := troubled(t, b, tr, of.opts...)
					var late lateSet
					tr.with = append(tr.with, late.keep(nil))
					claimInVain(t, locker, of.hold, "k")
					gaveUp, key := time.Now(), locker.StorageKey("k")
					time.Sleep(after)
					late.arrive(t, b, key)
					time.Sleep(until - time.Since(gaveUp))
					if b.server.Exists(key) {
						t.Errorf("the key is taken %v after its caller gave up", until)
					}
					if n := locker.Stats().Releases; after < time.Minute && n != 1 {
						t.Errorf("%d claims are being released, want one", n)
					}
					before := b.total()
					time.Sleep(time.Hour)
					if n := locker.Stats().Releases; n != 0 {
						t.Errorf("%d claims are being released after an hour", n)
					}
					if sent := b.total() - before; sent > 4 {
						t.Errorf("%d commands were sent in an hour", sent)
					}
					closeWithin(t, locker)
				})
			})
		}
	}
}

// The first try of a claim does not arrive at first, and the second one is granted. The first arrives when the lease was
// released.
//
// fault: first try of a claim lost, second granted, lease released, then the first arrives
func TestFirstTryArrivesAfterTheRelease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		met  func(b *bubble, theirs *lock.Lease) // before the second try; theirs has the key
		want lock.State
	}{
		"granted": {func(_ *bubble, theirs *lock.Lease) { _ = theirs.Release(context.Background()) }, lock.Granted},
		"another": {func(*bubble, *lock.Lease) {}, lock.Held},
	} {
		for _, after := range []time.Duration{0, 3 * time.Second, time.Minute} {
			for claims, of := range holds {
				t.Run(fmt.Sprint(name, " ", after, " ", claims), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						b, tr := newBubble(t), &trouble{}
						locker := troubled(t, b, tr, of.opts...)
						theirs := acquire(t, b.locker(t), "k")
						var late lateSet
						tr.with = append(tr.with, late.keep(io.ErrUnexpectedEOF),
							func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
								test.met(b, theirs)
								return next(ctx, cmd)
							})
						claim, err := locker.Claim(t.Context(), "k", nil, of.hold)
						if err != nil || claim.State != test.want {
							t.Fatalf("Claim: %v, %v, want %v", claim.State, err, test.want)
						}
						if claim.Lease != nil {
							time.Sleep(time.Minute)
							if err := errors.Join(claim.Lease.Err(), claim.Lease.Release(t.Context())); err != nil {
								t.Error(err)
							}
						} else if err := theirs.Release(t.Context()); err != nil {
							t.Error(err)
						}
						time.Sleep(after)
						synctest.Wait() // for a release that is being sent
						late.arrive(t, b, claim.Key)
						time.Sleep(11 * time.Minute)
						if b.server.Exists(claim.Key) {
							t.Error("the key is taken by a claim that was released")
						}
						closeWithin(t, locker)
					})
				})
			}
		}
	}
}

// fault: first try of a claim lost, second granted, lease settled, then the first arrives when the value has expired.
// Expected: the key is free again, and a Close before that names it.
func TestFirstTryArrivesAfterTheValue(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"open": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, tr := newBubble(t), &trouble{}
				locker := troubled(t, b, tr)
				var late lateSet
				tr.with = append(tr.with, late.keep(io.ErrUnexpectedEOF))
				claim, err := locker.Claim(t.Context(), "k", nil, hold)
				if err != nil || claim.State != lock.Granted {
					t.Fatalf("Claim: %v, %v", claim.State, err)
				}
				if err := claim.Lease.Settle(t.Context(), []byte("v"), time.Hour); err != nil {
					t.Fatal(err)
				}
				if closes {
					err := locker.Close(t.Context())
					if !errors.Is(err, lock.ErrUnreleased) || !strings.Contains(err.Error(), claim.Key) {
						t.Errorf("Close: %v, want ErrUnreleased and the key", err)
					}
					if s := locker.Stats(); s.Releases != 0 || s.ReleasesGivenUp != 1 {
						t.Errorf("%+v, want one given up", s)
					}
					return
				}
				time.Sleep(3 * time.Second)
				if !b.server.Exists(claim.Key) {
					t.Error("the value was released")
				}
				b.server.Del(claim.Key) // the value has expired
				late.arrive(t, b, claim.Key)
				time.Sleep(11 * time.Minute)
				if b.server.Exists(claim.Key) {
					t.Error("the key is taken by a claim that was settled")
				}
				closeWithin(t, locker)
			})
		})
	}
}

// The first try does not arrive at first, the second one meets a claim under a hold, and the look at that claim takes
// the key. The lease must not be released in the background.
func TestGrantedBehindALookIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := newBubble(t), &trouble{}
		locker, theirs := heldByAnother(t, b, tr)
		var late lateSet
		tr.with = append(tr.with, late.keep(io.ErrUnexpectedEOF),
			func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				_ = theirs.Release(context.WithoutCancel(ctx))
				return err
			})
		lease := claimUnder(t, locker, "k", hold)
		time.Sleep(time.Hour)
		if lease.Err() != nil || !b.server.Exists(locker.StorageKey("k")) {
			t.Fatalf("the lease: %v; the key is taken: %v", lease.Err(), b.server.Exists(locker.StorageKey("k")))
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		late.arrive(t, b, locker.StorageKey("k"))
		time.Sleep(11 * time.Minute)
		if b.server.Exists(locker.StorageKey("k")) {
			t.Error("the key is taken by a claim that was released")
		}
		closeWithin(t, locker)
	})
}

// A claim whose reply comes when its lease would be over is released, and forgotten: no other command of it may arrive.
func TestGrantedTooLateIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 100 * time.Millisecond
		b, tr := newBubble(t), &trouble{}
		locker := troubled(t, b, tr, lock.WithTTL(ttl))
		tr.with = append(tr.with, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			defer time.Sleep(ttl)
			return next(ctx, cmd)
		})
		claimInVain(t, locker, hold, "k")
		synctest.Wait()
		if s := locker.Stats(); s.Releases != 0 || b.server.Exists(locker.StorageKey("k")) {
			t.Errorf("%+v, want a free key, and no claim that is released again", s)
		}
		closeWithin(t, locker)
	})
}

// A lease whose Release had no answer is released too.
func TestReleaseGoesOnForAnHour(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		silence time.Duration
		givenUp uint64
	}{
		"59 minutes": {59 * time.Minute, 0}, "61 minutes": {61 * time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t)
				load(t, locker)
				lease := claimUnder(t, locker, "k", hold)
				b.silent.Store(true)
				lease.ReleaseInBackground(t.Context())
				time.Sleep(time.Second)
				if n := locker.Stats().Releases; n != 1 {
					t.Errorf("%d claims are being released, want one", n)
				}
				before := b.total()
				time.Sleep(test.silence)
				if sent := b.total() - before; sent > 3*int(test.silence/time.Second) {
					t.Errorf("%d commands were sent in %v", sent, test.silence)
				}
				b.silent.Store(false)
				time.Sleep(12 * time.Minute)
				if s := locker.Stats(); s.Releases != 0 || s.ReleasesGivenUp != test.givenUp {
					t.Errorf("%d claims are being released, %d given up, want 0 and %d", s.Releases, s.ReleasesGivenUp, test.givenUp)
				}
				if taken := b.server.Exists(locker.StorageKey("k")); taken != (test.givenUp == 1) {
					t.Errorf("the key is taken: %v", taken)
				}
				closeWithin(t, locker)
			})
		})
	}
}

// Close tries each release once more, and names the keys of those that have no answer.
func TestCloseNamesWhatItLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t)
		load(t, locker)
		b.deaf.Store(true)
		claimInVain(t, locker, hold, names("key ", 150)...)
		unsure := locker.Stats().Releases
		b.silent.Store(true)
		time.Sleep(time.Minute)
		err := locker.Close(t.Context())
		if text := fmt.Sprint(err); !errors.Is(err, lock.ErrUnreleased) || strings.Count(text, "test:{") != unsure {
			t.Errorf("Close: %v, want ErrUnreleased and %d keys", err, unsure)
		}
		if s := locker.Stats(); unsure == 0 || s.Releases != 0 || s.ReleasesGivenUp != uint64(unsure) {
			t.Errorf("%+v, want all %d given up", s, unsure)
		}
	})
}

func TestCloseReleasesOnceMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := newBubble(t), &trouble{}
		locker := troubled(t, b, tr)
		var late lateSet
		tr.with = append(tr.with, late.keep(nil))
		claimInVain(t, locker, hold, "k")
		time.Sleep(time.Second)
		key := locker.StorageKey("k")
		late.arrive(t, b, key) // after a release that was answered
		if err := locker.Close(t.Context()); !errors.Is(err, lock.ErrUnreleased) || !strings.Contains(err.Error(), key) {
			t.Errorf("Close: %v, want the key: another command of the claim may arrive", err)
		}
		if keys := b.server.Keys(); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// Close names the key of a lock whose release has got no reply, unless the lease has run out, which frees the key.
//
// fault: server silent from a Release to the end of Close
func TestCloseNamesALockThatItLeaves(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before time.Duration // Close
		want   error
	}{"the lease lasts": {time.Minute, lock.ErrUnreleased}, "the lease has run out": {time.Hour, nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t)
				load(t, locker)
				lease := acquire(t, locker, "k")
				if err := lease.Extend(t.Context(), 30*time.Minute); err != nil {
					t.Fatal(err)
				}
				b.silent.Store(true)
				lease.ReleaseInBackground(t.Context())
				time.Sleep(test.before)
				err := locker.Close(t.Context())
				if !errors.Is(err, test.want) || test.want != nil && !strings.Contains(err.Error(), locker.StorageKey("k")) {
					t.Errorf("Close: %v, want %v with the key", err, test.want)
				}
				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("another Close: %v", err)
				}
			})
		})
	}
}

// A Close that is cut short names what is still being released.
func TestCloseInAHurryNamesWhatItLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := lock.New(b.client, "test", lock.WithOpTimeout(500*time.Millisecond))
		load(t, locker)
		lease := claimUnder(t, locker, "k", hold)
		b.silent.Store(true)
		lease.ReleaseInBackground(t.Context())
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := locker.Close(ctx)
		if !errors.Is(err, lock.ErrUnreleased) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), locker.StorageKey("k")) {
			t.Errorf("Close: %v, want ErrUnreleased, DeadlineExceeded and the key", err)
		}
		b.silent.Store(false)
		closeWithin(t, locker) // waits for the last try
	})
}

// A release of a claim under a hold counts only once the replica has it: a failover would bring the claim back for as
// long as its hold.
//
// fault: replica stopped, WithReplicas(1)
func TestReleaseUnderAHoldIsReplicated(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{"of a lease": false, "of a claim that was not granted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, replica, _ := startReplicated(t)
			locker := newLocker(t, master.Client(t), briefly)
			load(t, newLocker(t, master.Client(t)))
			var lease *lock.Lease
			if !refused {
				lease = claimUnder(t, locker, "k", hold)
			}
			replica.Pause(t)
			if refused {
				if _, err := locker.Claim(t.Context(), "k", nil, hold); !errors.Is(err, lock.ErrNotReplicated) {
					t.Errorf("Claim: %v, want ErrNotReplicated", err)
				}
			} else if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrNotReplicated) {
				t.Errorf("Release: %v, want ErrNotReplicated", err)
			}
			before, _ := executed(t, master)
			eventually(t, "the release is sent again, though the key is free on the master", func() bool {
				now, _ := executed(t, master)
				return now >= before+3 && len(master.Keys(t)) == 0
			})
			if s := locker.Stats(); s.Releases != 1 {
				t.Errorf("%d claims are being released, want one", s.Releases)
			}
			replica.Resume(t)
			closeWithin(t, locker) // waits until the replica has acknowledged
			if keys := replica.Keys(t); len(keys) > 0 {
				t.Errorf("left on the replica: %q", keys)
			}
		})
	}
}

// The reply to a release is lost, and the next try, on another connection, finds nothing to release. The replica does not
// have the first one.
//
// fault: replica stopped, WithReplicas(1)
func TestUnacknowledgedReleaseIsSentAgain(t *testing.T) {
	t.Parallel()
	master, replica, p := startReplicated(t)
	load(t, newLocker(t, master.Client(t)))
	locker := newLocker(t, p.Client(t), briefly)
	lease := claimUnder(t, locker, "k", hold)
	replica.Pause(t)
	lost := p.DropReply(redistest.Nth(1, redistest.Named("EVALSHA")))
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrNotReplicated) || lost.Hits() != 1 {
		t.Errorf("Release: %v, want ErrNotReplicated; %d replies were lost", err, lost.Hits())
	}
	replica.Resume(t)
	closeWithin(t, locker)
	if keys := replica.Keys(t); len(keys) > 0 {
		t.Errorf("left on the replica: %q", keys)
	}
}
