package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// How the waiters of a key share polls: see poll.go and waiters.go.

// joining is a Locker that has a look under way when somebody else comes to wait, and the holder of what they wait for. Its
// replies pass the gate slow.
type joining struct {
	*bubble
	holder, locker *lock.Locker
}

func newJoining(t *testing.T, opts ...lock.Option) *joining {
	j := &joining{bubble: newBubble(t)}
	j.holder = newLocker(t, redistest.NewDirect(t, j.client.Options()).Client)
	j.locker = j.bubble.locker(t, append([]lock.Option{byMessage}, opts...)...)
	load(t, j.holder)
	return j
}

// look releases the lease, and returns when the look that its message has led to was carried out, and has no answer
// yet.
func (j *joining) look(t *testing.T, lease *lock.Lease) {
	t.Helper()
	synctest.Wait()
	j.slow.close()
	before := j.commands("EVALSHA")
	release(t, lease)
	synctest.Wait()
	if got := j.commands("EVALSHA") - before; got != 2 {
		t.Fatalf("%d scripts have run, want the release and the look", got)
	}
}

// now returns the call, which must have returned without any time going by.
func (w *waiting) now(t *testing.T) *waiting {
	t.Helper()
	synctest.Wait()
	select {
	case <-w.done:
	default:
		t.Fatal("it still waits")
	}
	return w
}

// goesOn fails the test unless the call still waits.
func (w *waiting) goesOn(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case <-w.done:
		t.Errorf("it has ended: %v, %v", w.claim.State, w.err)
	default:
	}
}

func (w *waiting) free(t *testing.T) {
	t.Helper()
	if w.now(t); w.err != nil || w.claim.State != lock.Free {
		t.Errorf("Wait: %v, %v, want free", w.claim.State, w.err)
	}
}

// lease returns the lease that Acquire was granted.
func (w *waiting) lease(t *testing.T) *lock.Lease {
	t.Helper()
	if w.now(t); w.err != nil {
		t.Fatalf("Acquire: %v", w.err)
	}
	return w.claim.Lease
}

// A poll that was begun before a call does not count for it. Here it takes the key for the first waiter, who may have given
// up, or tells it that the key is free.
func TestJoinDuringAPoll(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		firstTakes, firstGivesUp bool
		retaken                  bool // by another, behind the poll
		secondTakes              bool
	}{
		"the key is taken for the first":           {firstTakes: true, secondTakes: true},
		"the key is taken for one that gave up":    {firstTakes: true, firstGivesUp: true, secondTakes: true},
		"Acquire joins a Wait":                     {secondTakes: true},
		"Wait joins a Wait, and the key was free":  {retaken: true},
		"Wait joins an Acquire, which has the key": {firstTakes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := newJoining(t)
				call := func(ctx context.Context, takes bool) *waiting {
					if takes {
						return acquireFor(ctx, j.locker, "k")
					}
					return waitFor(ctx, j.locker, "k")
				}
				lease := acquire(t, j.holder, "k")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := call(ctx, test.firstTakes)
				j.look(t, lease)
				var holds *lock.Lease
				if test.retaken {
					holds = acquire(t, j.holder, "k")
				}
				second := call(t.Context(), test.secondTakes)
				synctest.Wait()
				if test.firstGivesUp {
					cancel()
					if first.now(t); !errors.Is(first.err, lock.ErrHeld) {
						t.Errorf("the one that gave up: %v, want ErrHeld", first.err)
					}
				}
				j.slow.open()
				switch {
				case test.firstTakes && !test.firstGivesUp:
					holds = first.lease(t)
				case !test.firstTakes:
					first.free(t)
				}
				if holds != nil {
					second.goesOn(t)
					release(t, holds)
				}
				if test.secondTakes {
					release(t, second.lease(t))
				} else {
					second.free(t)
				}
			})
		})
	}
}

// A poll that found the key held does not spend the attempt of a call that came when the key was free.
func TestJoinAfterItWasSeenHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t, lock.WithRetry(lock.Retry{Min: time.Hour, Max: time.Hour, Attempts: 1}))
		lease := acquire(t, j.holder, "k")
		j.slow.close()
		first := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		release(t, lease)
		second := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		j.slow.open()
		if first.now(t); !errors.Is(first.err, lock.ErrHeld) {
			t.Errorf("the one who saw it held: %v, want ErrHeld", first.err)
		}
		release(t, second.lease(t))
	})
}

// A first poll whose reply is lost concerns only its caller: no claim is left behind.
func TestFirstPollFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		locker := b.locker(t, byMessage)
		load(t, locker)
		b.deaf.Store(true)
		first := acquireFor(t.Context(), locker, "k")
		synctest.Wait()
		second := acquireFor(t.Context(), locker, "k")
		synctest.Wait()
		b.deaf.Store(false)
		if <-first.done; !errors.Is(first.err, context.DeadlineExceeded) || errors.Is(first.err, lock.ErrHeld) {
			t.Errorf("the first: %v, want that Redis has not answered", first.err)
		}
		release(t, second.lease(t))
		if keys := b.server.Keys(); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// slowToSelect delays a goroutine that is about to select on it.
type slowToSelect struct {
	context.Context
	goOn chan struct{}
}

func (c *slowToSelect) Done() <-chan struct{} {
	<-c.goOn
	return c.Context.Done()
}

// A lease that is granted at the moment at which its caller gives up reaches the caller.
func TestWaiterGivesUpAsItIsGranted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		holder, locker := b.locker(t), b.locker(t, byMessage)
		for range 20 { // each time it is a coin's toss which of the two is seen first
			lease := acquire(t, holder, "k")
			first := waitFor(t.Context(), locker, "k")
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			slow := &slowToSelect{ctx, make(chan struct{})}
			second := acquireFor(slow, locker, "k")
			synctest.Wait()
			release(t, lease)
			synctest.Wait()
			cancel()
			close(slow.goOn)
			release(t, second.lease(t))
			first.free(t)
		}
	})
}

// No waiter pauses for longer than what is left of the claim: of another's, of its hold, and of one granted to a fellow
// waiter.
func TestPauseEndsWithTheClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease, look = 10 * time.Second, 10 * time.Millisecond
		b := newBubble(t)
		claimUnder(t, b.locker(t, lock.WithoutRenewal()), "k", 2*lease)
		locker := b.locker(t, byMessage, lock.WithoutRenewal())
		first := acquireFor(t.Context(), locker, "k")
		synctest.Wait()
		second, waits := acquireFor(t.Context(), locker, "k"), waitFor(t.Context(), b.locker(t, byMessage), "k")
		if <-waits.done; waits.err != nil || waits.claim.State != lock.Abandoned || waits.took > lease+look {
			t.Errorf("Wait: %v, %v after %v", waits.claim.State, waits.err, waits.took)
		}
		if <-first.done; first.err != nil || first.took > 3*lease+2*look {
			t.Fatalf("Acquire: %v after %v, the claim stands for %v", first.err, first.took, 3*lease)
		}
		if <-second.done; second.err != nil || second.took > 4*lease+3*look {
			t.Fatalf("the next Acquire: %v after %v", second.err, second.took)
		}
		release(t, second.claim.Lease)
	})
}

// Waiters that share a poll do not share the bytes of the note or the value.
func TestWaitersShareNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, *lock.Lease) error{
		"value": func(ctx context.Context, l *lock.Lease) error { return l.Settle(ctx, []byte("text"), time.Hour) },
		"note":  func(_ context.Context, l *lock.Lease) error { l.Abandon(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				locker := newBubble(t).locker(t)
				held, err := locker.Claim(t.Context(), "k", []byte("text"), time.Hour)
				must(t, err)
				waiters := []*waiting{waitFor(t.Context(), locker, "k"), waitFor(t.Context(), locker, "k")}
				synctest.Wait()
				must(t, end(t.Context(), held.Lease))
				for i, w := range waiters {
					<-w.done
					if got := append(w.claim.Note, w.claim.Value...); w.err != nil || string(got) != "text" {
						t.Fatalf("waiter %d: %q, %v", i, got, w.err)
					}
					clear(w.claim.Note)
					clear(w.claim.Value)
				}
			})
		})
	}
}

// Attempts counts timed polls. Polls that a message caused are not counted.
func TestMessagesSpendNoAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		acquire(t, b.locker(t), "k")
		locker := b.locker(t, lock.WithRetry(lock.Retry{Min: time.Hour, Max: time.Hour, Attempts: 2}))
		w := acquireFor(t.Context(), locker, "k")
		w.goesOn(t) // its subscription was confirmed, which is a message too
		for range 5 {
			looks := b.commands("EVALSHA")
			must(t, b.client.Publish(t.Context(), locker.StorageKey("k"), "").Err())
			w.goesOn(t)
			if b.commands("EVALSHA") == looks {
				t.Fatal("the message has led to no look")
			}
		}
		if <-w.done; !errors.Is(w.err, lock.ErrHeld) || w.took == 0 {
			t.Errorf("after %v: %v, want ErrHeld by the clock", w.took, w.err)
		}
	})
}

// ErrHeld means that somebody holds the key. If that is not known, the error is only the cause of ctx.
func TestErrHeldIsKnown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(t *testing.T, b *bubble, locker *lock.Locker)
		known   bool
	}{
		"Redis is silent": {
			func(_ *testing.T, b *bubble, _ *lock.Locker) { b.silent.Store(true) }, false,
		},
		"another has seen it held": {
			func(t *testing.T, b *bubble, locker *lock.Locker) {
				acquire(t, b.locker(t), "k")
				acquireFor(t.Context(), locker, "k")
				synctest.Wait()
				b.silent.Store(true)
			}, true,
		},
		"another has seen it abandoned": {
			func(t *testing.T, b *bubble, locker *lock.Locker) {
				abandonHeld(t, b)
				acquireFor(t.Context(), locker, "k")
				synctest.Wait()
				b.silent.Store(true)
			}, true,
		},
		"another was granted it": {
			func(t *testing.T, b *bubble, locker *lock.Locker) {
				lease := acquire(t, b.locker(t), "k")
				acquireFor(t.Context(), locker, "k")
				synctest.Wait()
				acquireFor(t.Context(), locker, "k")
				synctest.Wait()
				release(t, lease)
				synctest.Wait()
				b.silent.Store(true)
			}, true,
		},
	} {
		t.Run(name, bubbled(func(t *testing.T, b *bubble) {
			locker := b.locker(t, byMessage)
			load(t, locker)
			test.prepare(t, b, locker)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := locker.Acquire(ctx, "k")
			if got := errors.Is(err, lock.ErrHeld); got != test.known || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v; that it is ErrHeld: %v, want %v", err, got, test.known)
			}
			b.silent.Store(false)
			closeWithin(t, locker)
		}))
	}
}

// abandonHeld leaves the key abandoned.
func abandonHeld(t *testing.T, b *bubble) {
	t.Helper()
	lease := claimUnder(t, b.locker(t, lock.WithTTL(time.Second)), "k", time.Hour)
	lease.Abandon()
	<-lease.Context().Done()
	time.Sleep(time.Second) // for what is taken off for drift
}

// Close during a poll that takes the key for one waiter, while another one joins: the first gets a lease that can be
// released, the other one ErrClosed.
func TestCloseWhileTheKeyIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t)
		lease := acquire(t, j.holder, "k")
		first := acquireFor(t.Context(), j.locker, "k")
		j.look(t, lease)
		second := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- j.locker.Close(context.Background()) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close has not waited for what is under way")
		default:
		}
		j.slow.open()
		granted := first.lease(t)
		if second.now(t); !errors.Is(second.err, lock.ErrClosed) {
			t.Errorf("the one who came later: %v, want ErrClosed", second.err)
		}
		wantErr(t, "Close", <-closed, nil)
		release(t, granted)
		if keys := j.server.Keys(); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// fault: 1,000 waiters, the holder dies
func TestThousandWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		b := newBubble(t)
		holder, locker := b.locker(t), b.locker(t)
		lease := acquire(t, holder, "k")
		lease.Abandon()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waiters, before := make([]*waiting, n), b.total()
		for i := range waiters {
			waiters[i] = acquireFor(ctx, locker, "k")
		}
		<-lease.Context().Done()
		time.Sleep(time.Second) // what is taken off for drift, and the next look
		synctest.Wait()
		if held, waiting := locker.Stats().Leases, locker.Stats().Waiters; held != 1 || waiting != n-1 {
			t.Fatalf("%d winners, and %d wait, want 1 and %d", held, waiting, n-1)
		}
		died := b.total() - before
		for _, w := range waiters {
			if <-w.done; w.err == nil {
				defer release(t, w.claim.Lease)
			} else if !errors.Is(w.err, lock.ErrHeld) || !errors.Is(w.err, context.DeadlineExceeded) {
				t.Error(w.err)
			}
		}
		if all := b.total() - before; died > 60 || all > 300 {
			t.Errorf("%d commands until one had won, %d in a minute, want 60 and 300 at most", died, all)
		}
	})
}

// Waiters get the key in the order in which they came. One that gives up does not delay the next. Nothing is left behind.
func TestWaitersAreServedInTheirOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		locker := b.locker(t, byMessage)
		lease := acquire(t, locker, "k")
		ctx, cancel := context.WithCancel(t.Context())
		leaves := acquireFor(ctx, locker, "k")
		synctest.Wait()
		var waiters []*waiting
		for range 5 {
			waiters = append(waiters, acquireFor(t.Context(), locker, "k"))
			synctest.Wait()
		}
		cancel()
		if leaves.now(t); !errors.Is(leaves.err, lock.ErrHeld) || !errors.Is(leaves.err, context.Canceled) {
			t.Errorf("the one that gave up: %v", leaves.err)
		}
		for i, w := range waiters {
			before := b.total()
			release(t, lease)
			lease = w.lease(t)
			for _, next := range waiters[i+1:] {
				next.goesOn(t)
			}
			if got := b.total() - before; got > 4 {
				t.Errorf("from one waiter to the next: %d commands", got)
			}
		}
		release(t, lease)
		synctest.Wait()
		if keys, channels := b.server.Keys(), b.server.PubSubChannels("*"); len(keys)+len(channels) > 0 {
			t.Errorf("left: keys %q, channels %q", keys, channels)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *lock.Locker) error{
		"Acquire": func(ctx context.Context, l *lock.Locker) error { _, err := l.Acquire(ctx, "k"); return err },
		"Wait":    func(ctx context.Context, l *lock.Locker) error { _, err := l.Wait(ctx, "k"); return err },
	} {
		t.Run(name, bubbled(func(t *testing.T, b *bubble) {
			acquire(t, b.locker(t), "k")
			locker := b.locker(t)

			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			start := time.Now()
			if err := call(ctx, locker); !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a deadline: %v", err)
			}
			if got := time.Since(start); got != 3*time.Second {
				t.Errorf("it took %v", got)
			}
			cancel()
			if err := call(ctx, locker); errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a context that was done before: %v", err)
			}
			few := b.locker(t, lock.WithRetry(lock.Retry{Attempts: 3}))
			if err := call(t.Context(), few); !errors.Is(err, lock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("spent looks: %v", err)
			}
			one := b.locker(t, lock.WithRetry(lock.Retry{Attempts: 1}))
			start = time.Now()
			if err := call(t.Context(), one); !errors.Is(err, lock.ErrHeld) || time.Since(start) != 0 {
				t.Errorf("one look: %v after %v", err, time.Since(start))
			}

			errs := make(chan error)
			go func() { errs <- call(t.Context(), locker) }()
			synctest.Wait()
			closeWithin(t, locker)
			if err := <-errs; !errors.Is(err, lock.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
			if err := call(t.Context(), locker); !errors.Is(err, lock.ErrClosed) {
				t.Errorf("closed before: %v", err)
			}
		}))
	}
}

// A poll that fails ends an Acquire. A Wait goes on, and returns that error only when its own time is over.
func TestPollFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		locker := b.locker(t)
		acquire(t, b.locker(t), "k").Abandon()
		brief, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		waits, ends := waitFor(t.Context(), locker, "k"), waitFor(brief, locker, "k")
		takes := acquireFor(t.Context(), locker, "k")
		synctest.Wait()
		b.silent.Store(true)
		if <-takes.done; !errors.Is(takes.err, context.DeadlineExceeded) || errors.Is(takes.err, lock.ErrHeld) {
			t.Errorf("Acquire: %v, want that Redis has not answered", takes.err)
		}
		<-ends.done
		var wait *lock.WaitError
		if !errors.Is(ends.err, lock.ErrHeld) || !errors.As(ends.err, &wait) || !errors.Is(wait.Look, context.DeadlineExceeded) ||
			errors.Is(wait.Look, lock.ErrHeld) {
			t.Errorf("a Wait of two seconds: %v, want ErrHeld and that Redis has not answered", ends.err)
		}
		b.silent.Store(false)
		if <-waits.done; waits.err != nil || waits.claim.State != lock.Free {
			t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
		}
	})
}
