package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// slowScripts is a hook for scripts, which it tells by how many arguments they have. It keeps some on their way for a
// while, and swallows one, to be sent by the test itself.
type slowScripts struct {
	slow      map[int]time.Duration
	swallows  int
	swallowed atomic.Pointer[[]any]
}

const (
	extendArgs = 7
	holdArgs   = 9
)

func (*slowScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slowScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		args := cmd.Args()
		if len(args) == s.swallows && s.swallowed.CompareAndSwap(nil, &args) {
			<-ctx.Done()
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		}
		time.Sleep(s.slow[len(args)])
		return next(ctx, cmd)
	}
}

func (*slowScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// slowed returns a Locker whose scripts pass the hook.
func slowed(t *testing.T, s *slowScripts, opts ...lock.Option) (*bubble, *lock.Locker) {
	t.Helper()
	b := newBubble(t)
	locker := b.locker(t, opts...)
	load(t, locker)
	b.direct.AddHook(s)
	return b, locker
}

// An Extend and a Hold at the same time: neither undoes what the other has done.
func TestExtendWhileAHoldIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, locker := slowed(t, &slowScripts{slow: map[int]time.Duration{holdArgs: 50 * time.Millisecond}}, lock.WithoutRenewal())
		lease := acquire(t, locker, "k")
		held := make(chan error)
		go func() { held <- lease.Hold(t.Context(), time.Minute) }()
		synctest.Wait()
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Errorf("Extend: %v", err)
		}
		if err := <-held; err != nil {
			t.Errorf("Hold: %v", err)
		}
		time.Sleep(time.Until(lease.Until()))
		wantState(t, locker, "as long as it is valid", lock.Held)
		closeWithin(t, locker)
	})
}

// A Hold whose caller gave up arrives after an Extend, when the holder relies on the new end of the lease.
func TestHoldArrivesBehindAnExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scripts := &slowScripts{swallows: holdArgs}
		b, locker := slowed(t, scripts, lock.WithoutRenewal())
		lease := acquire(t, locker, "k")
		if err := lease.Hold(t.Context(), time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold: %v, want DeadlineExceeded", err)
		}
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Errorf("Extend: %v", err)
		}
		if err := b.client.Do(t.Context(), *scripts.swallowed.Load()...).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(lease.Until()))
		wantState(t, locker, "as long as it is valid", lock.Held)
		closeWithin(t, locker)
	})
}

// A Hold without a reply has arrived. A later Extend extends the lease all the same, and the key for the hold.
func TestExtendBehindAHoldWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithoutRenewal())
		load(t, locker)
		lease := acquire(t, locker, "k")
		b.deaf.Store(true)
		if err := lease.Hold(t.Context(), 24*time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold: %v, want DeadlineExceeded", err)
		}
		b.deaf.Store(false)
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Errorf("Extend: %v", err)
		}
		time.Sleep(time.Until(lease.Until()))
		wantState(t, locker, "as long as it is valid", lock.Held)
		time.Sleep(2 * time.Minute)
		wantState(t, locker, "when the lease is over", lock.Abandoned)
		closeWithin(t, locker)
	})
}

// A renewal that is in flight makes the lease longer than it was when Hold was called.
func TestLateHoldBehindARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scripts := &slowScripts{
			slow:     map[int]time.Duration{extendArgs: 100 * time.Millisecond},
			swallows: holdArgs,
		}
		b, locker := slowed(t, scripts, lock.WithTTL(ttl))
		lease := acquire(t, locker, "k")
		time.Sleep(ttl/3 + time.Millisecond)
		if err := lease.Hold(t.Context(), 24*time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold: %v, want DeadlineExceeded", err)
		}
		time.Sleep(time.Second)
		if err := b.client.Do(t.Context(), *scripts.swallowed.Load()...).Err(); !redis.HasErrorPrefix(err, "LATE") {
			t.Errorf("a second after it was given up: %v, want LATE", err)
		}
		<-lease.Context().Done()
		time.Sleep(ttl)
		wantState(t, locker, "when the lease is over", lock.Granted)
		closeWithin(t, locker)
	})
}

// A renewal that is due while a Hold is in flight is not sent after that Hold has failed.
func TestNoRenewalBehindAHoldThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scripts := &slowScripts{
			slow:     map[int]time.Duration{extendArgs: time.Second},
			swallows: holdArgs,
		}
		_, locker := slowed(t, scripts, lock.WithTTL(ttl), lock.WithOpTimeout(ttl/2))
		lease := acquire(t, locker, "k")
		extended := make(chan error)
		time.Sleep(ttl/3 - 500*time.Millisecond)
		go func() { extended <- lease.Extend(t.Context(), ttl) }() // until after a renewal is due
		time.Sleep(250 * time.Millisecond)
		failed := make(chan error)
		go func() { failed <- lease.Hold(t.Context(), time.Hour) }()
		if err := <-extended; err != nil {
			t.Errorf("Extend: %v", err)
		}
		until := lease.Until()
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold: %v, want DeadlineExceeded", err)
		}
		<-lease.Context().Done()
		if got := lease.Until(); got != until {
			t.Errorf("the lease was renewed for %v", got.Sub(until))
		}
		closeWithin(t, locker)
	})
}

// A call that waits while another is in flight times out after the time for one operation.
func TestWaitWhileBusyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 500 * time.Millisecond
		b := newBubble(t)
		locker := b.locker(t, lock.WithoutRenewal())
		load(t, locker)
		lease := acquire(t, locker, "k")
		b.silent.Store(true)
		first := make(chan error)
		go func() { first <- lease.Extend(t.Context(), time.Minute) }()
		time.Sleep(limit / 5)
		for what, call := range map[string]func(context.Context) error{
			"Extend": func(ctx context.Context) error { return lease.Extend(ctx, time.Minute) },
			"Hold":   func(ctx context.Context) error { return lease.Hold(ctx, time.Minute) },
		} {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), limit/5)
			defer cancel()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != limit/5 {
				t.Errorf("%s of a caller in a hurry: %v after %v", what, err, time.Since(begun))
			}
		}
		begun := time.Now()
		if err := lease.Extend(t.Context(), time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != limit {
			t.Errorf("Extend: %v after %v, want DeadlineExceeded after %v", err, time.Since(begun), limit)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first Extend: %v, want DeadlineExceeded", err)
		}
		b.silent.Store(false)
		closeWithin(t, locker)
	})
}

// Another Settle of the lease is refused at once, and the first one goes on in the background.
func TestSettleAgain(t *testing.T) {
	for name, test := range map[string]struct {
		silence time.Duration // from the first Settle on
		again   time.Duration // when it is called again
		value   string
	}{
		"after it has succeeded in the background": {time.Second, ttl, "v"},
		"with another value":                       {time.Second, ttl, "w"},
		"while it is tried in the background":      {ttl, 2 * time.Second, "v"},
		"with another value meanwhile":             {ttl, 2 * time.Second, "w"},
		"when a lease has passed":                  {2*ttl + time.Second, 2 * ttl, "v"},
		"when that has, and the server is there":   {2 * ttl, 2*ttl + time.Second, "w"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(ttl))
				load(t, locker)
				lease, begun := acquire(t, locker, "k"), time.Now()
				b.full.Store(true)
				time.AfterFunc(test.silence, func() { b.full.Store(false) })
				if err := lease.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Settle: %v, want DeadlineExceeded", err)
				}
				time.Sleep(test.again - time.Since(begun))
				before := time.Now()
				err := lease.Settle(t.Context(), []byte(test.value), time.Hour)
				if !errors.Is(err, lock.ErrLost) || time.Since(before) != 0 {
					t.Errorf("again: %v after %v, want ErrLost at once", err, time.Since(before))
				}
				time.Sleep(6 * ttl)
				synctest.Wait()
				if claim := wantState(t, locker, "at the end", lock.Settled); string(claim.Value) != "v" {
					t.Errorf("the key holds %q, want v", claim.Value)
				}
				closeWithin(t, locker)
			})
		})
	}
}

// The claim is kept alive for a pending Settle, whether or not a Hold in flight succeeds. The Settle times out after
// half a second.
func TestSettleDuringAHold(t *testing.T) {
	for name, test := range map[string]struct {
		scripts *slowScripts
		before  func(*lock.Lease)
		after   time.Duration // from the Settle to the Hold
		want    error         // of that
	}{
		"that fails": {
			&slowScripts{swallows: holdArgs}, func(*lock.Lease) {}, 200 * time.Millisecond, context.DeadlineExceeded,
		},
		"that begins later, and fails": {
			&slowScripts{swallows: holdArgs}, func(*lock.Lease) {}, 600 * time.Millisecond, context.DeadlineExceeded,
		},
		"of an abandoned lease": {
			&slowScripts{slow: map[int]time.Duration{holdArgs: 400 * time.Millisecond}}, (*lock.Lease).Abandon,
			200 * time.Millisecond, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, locker := slowed(t, test.scripts, lock.WithTTL(ttl))
				lease := acquire(t, locker, "k")
				test.before(lease)
				time.Sleep(ttl / 4)
				held := make(chan error)
				time.AfterFunc(test.after, func() { held <- lease.Hold(t.Context(), time.Minute) })
				b.full.Store(true)
				time.AfterFunc(ttl-time.Second, func() { b.full.Store(false) })
				if err := lease.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Settle: %v, want DeadlineExceeded", err)
				}
				if err := <-held; !errors.Is(err, test.want) {
					t.Errorf("Hold: %v, want %v", err, test.want)
				}
				until := lease.Until()
				time.Sleep(ttl / 2)
				if !lease.Until().After(until) {
					t.Error("the lease is not renewed")
				}
				<-lease.Context().Done()
				if got := context.Cause(lease.Context()); got != context.Canceled {
					t.Errorf("the lease has ended with %v, want that it is settled", got)
				}
				closeWithin(t, locker)
			})
		})
	}
}
