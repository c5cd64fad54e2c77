package lock_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// gatedConn keeps the replies to a client's commands, but not the messages that it hears, while its gate is shut.
type gatedConn struct {
	*bubbleConn
	gate *gate
}

func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.bubbleConn.Read(p)
	if !c.subscribes.Load() {
		c.gate.pass()
	}
	return n, err
}

// joining is a Locker that has a look under way when somebody else comes to wait, and the holder of what they wait for.
type joining struct {
	b              *bubble
	holder, locker *lock.Locker
	gate           *gate
}

func newJoining(t *testing.T, opts ...lock.Option) *joining {
	j := &joining{b: newBubble(t), gate: &gate{}}
	client := redistest.NewDirect(t, &redis.Options{
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := j.b.client.Options().Dialer(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &gatedConn{conn.(*bubbleConn), j.gate}, nil
		},
	}).Client
	j.holder = j.b.locker(t)
	j.locker = newLocker(t, client, append([]lock.Option{byMessage, lock.WithOpTimeout(500 * time.Millisecond)}, opts...)...)
	load(t, j.holder)
	if err := acquire(t, j.locker, "connects").Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return j
}

// look releases the lease, and returns when the look that its message has led to was carried out, and has no answer
// yet.
func (j *joining) look(t *testing.T, lease *lock.Lease) {
	t.Helper()
	synctest.Wait()
	j.gate.close()
	before := j.b.commands("EVALSHA")
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if got := j.b.commands("EVALSHA") - before; got != 2 {
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

// A waiter that joins while a poll takes the key for another waits for that one's lease.
func TestJoinWhileTheKeyIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t)
		lease := acquire(t, j.holder, "k")
		first := acquireFor(t.Context(), j.locker, "k")
		j.look(t, lease)
		second := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		j.gate.open()
		granted := first.lease(t)
		second.goesOn(t)
		release(t, granted)
		release(t, second.lease(t))
	})
}

// The same when that other waiter has given up.
func TestJoinWhileTheKeyIsTakenForOneThatGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t)
		lease := acquire(t, j.holder, "k")
		ctx, cancel := context.WithCancel(t.Context())
		first := acquireFor(ctx, j.locker, "k")
		j.look(t, lease)
		second := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		cancel()
		if first.now(t); !errors.Is(first.err, lock.ErrHeld) {
			t.Errorf("the one that left: %v, want ErrHeld", first.err)
		}
		j.gate.open()
		release(t, second.lease(t))
	})
}

// An Acquire that joins a poll of a Wait does not miss that the key is free.
func TestAcquireJoinsAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t)
		lease := acquire(t, j.holder, "k")
		first := waitFor(t.Context(), j.locker, "k")
		j.look(t, lease)
		second := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		j.gate.open()
		first.free(t)
		release(t, second.lease(t))
	})
}

// A poll that was begun before a call does not count for it: here it found the key free.
func TestJoinAfterItWasSeenFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t)
		lease := acquire(t, j.holder, "k")
		first := waitFor(t.Context(), j.locker, "k")
		j.look(t, lease)
		next := acquire(t, j.holder, "k")
		second := waitFor(t.Context(), j.locker, "k")
		synctest.Wait()
		j.gate.open()
		first.free(t)
		second.goesOn(t)
		release(t, next)
		second.free(t)
	})
}

// The same when it found the key held, which would spend an attempt of a call that came when the key was free.
func TestJoinAfterItWasSeenHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t, lock.WithRetry(lock.Retry{Min: time.Hour, Max: time.Hour, Attempts: 1}))
		lease := acquire(t, j.holder, "k")
		j.gate.close()
		first := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		release(t, lease)
		second := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		j.gate.open()
		if first.now(t); !errors.Is(first.err, lock.ErrHeld) {
			t.Errorf("the one who saw it held: %v, want ErrHeld", first.err)
		}
		release(t, second.lease(t))
	})
}

// A first poll that fails concerns only its caller, whether it was executed or not: no claim is left behind.
func TestFirstPollFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*bubble) *atomic.Bool{
		"request is lost": func(b *bubble) *atomic.Bool { return &b.silent },
		"reply is lost":   func(b *bubble) *atomic.Bool { return &b.deaf },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, byMessage)
				load(t, locker)
				fault(b).Store(true)
				first := acquireFor(t.Context(), locker, "k")
				synctest.Wait()
				second := acquireFor(t.Context(), locker, "k")
				synctest.Wait()
				fault(b).Store(false)
				if <-first.done; !errors.Is(first.err, context.DeadlineExceeded) || errors.Is(first.err, lock.ErrHeld) {
					t.Errorf("the first: %v, want that Redis has not answered", first.err)
				}
				release(t, second.lease(t))
				if keys := b.server.Keys(); len(keys) > 0 {
					t.Errorf("left: %q", keys)
				}
			})
		})
	}
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
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

// No waiter pauses for longer than what is left of the claim, also of one granted to a fellow waiter.
func TestLeaseOfAFellowWaiterRunsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, byMessage, lock.WithoutRenewal())
		lease := acquire(t, locker, "k")
		first := acquireFor(t.Context(), locker, "k")
		synctest.Wait()
		second := acquireFor(t.Context(), locker, "k")
		synctest.Wait()
		release(t, lease)
		first.lease(t)
		granted := time.Now()
		if <-second.done; second.err != nil {
			t.Fatal(second.err)
		}
		if got := time.Since(granted); got > 10*time.Second+10*time.Millisecond {
			t.Errorf("served %v after the first one, whose lease lasts for 10 s", got)
		}
		release(t, second.claim.Lease)
	})
}

// The same for the hold of a holder that has died.
func TestHeldClaimRunsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		claimUnder(t, b.locker(t, lock.WithoutRenewal()), "k", 20*time.Second)
		takes := acquireFor(t.Context(), b.locker(t, byMessage), "k")
		waits := waitFor(t.Context(), b.locker(t, byMessage), "k")
		const look = 10 * time.Millisecond
		if <-waits.done; waits.err != nil || waits.claim.State != lock.Abandoned {
			t.Errorf("Wait: %v, %v, want abandoned", waits.claim.State, waits.err)
		}
		if waits.took > 10*time.Second+look {
			t.Errorf("Wait took %v, the lease lasts for 10 s", waits.took)
		}
		if <-takes.done; takes.err != nil {
			t.Fatal(takes.err)
		}
		if takes.took > 30*time.Second+2*look {
			t.Errorf("Acquire took %v, the claim stands for 30 s", takes.took)
		}
		release(t, takes.claim.Lease)
	})
}

// Waiters that share a poll do not share the bytes of the note or the value.
func TestWaitersShareNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(*lock.Lease) error
		text func(lock.Claim) []byte
	}{
		"value": {
			func(l *lock.Lease) error { return l.Settle(context.Background(), []byte("text"), time.Hour) },
			func(c lock.Claim) []byte { return c.Value },
		},
		"note": {
			func(l *lock.Lease) error { l.Abandon(); return nil },
			func(c lock.Claim) []byte { return c.Note },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t)
				held, err := locker.Claim(t.Context(), "k", []byte("text"), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				waiters := []*waiting{waitFor(t.Context(), locker, "k"), waitFor(t.Context(), locker, "k")}
				synctest.Wait()
				if err := test.end(held.Lease); err != nil {
					t.Fatal(err)
				}
				for i, w := range waiters {
					<-w.done
					got := test.text(w.claim)
					if w.err != nil || string(got) != "text" {
						t.Fatalf("waiter %d: %q, %v", i, got, w.err)
					}
					clear(got)
				}
			})
		})
	}
}

// Attempts counts timed polls. Polls that a message caused are not counted.
func TestMessagesSpendNoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		acquire(t, b.locker(t), "k")
		locker := b.locker(t, lock.WithRetry(lock.Retry{Min: time.Hour, Max: time.Hour, Attempts: 2}))
		w := acquireFor(t.Context(), locker, "k")
		w.goesOn(t) // its subscription was confirmed, which is a message too
		for range 5 {
			looks := b.commands("EVALSHA")
			if err := b.client.Publish(t.Context(), locker.StorageKey("k"), "").Err(); err != nil {
				t.Fatal(err)
			}
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
		"another's first look is under way": {
			func(t *testing.T, b *bubble, locker *lock.Locker) {
				b.silent.Store(true)
				acquireFor(t.Context(), locker, "k")
			}, false,
		},
		"another has seen it held": {
			func(t *testing.T, b *bubble, locker *lock.Locker) {
				acquire(t, b.locker(t), "k")
				acquireFor(t.Context(), locker, "k")
				synctest.Wait()
				b.silent.Store(true)
			}, true,
		},
		"it was abandoned": {
			func(t *testing.T, b *bubble, _ *lock.Locker) { abandonHeld(t, b) }, true,
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
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
			})
		})
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
		j.gate.open()
		granted := first.lease(t)
		if second.now(t); !errors.Is(second.err, lock.ErrClosed) {
			t.Errorf("the one who came later: %v, want ErrClosed", second.err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		release(t, granted)
		if keys := j.b.server.Keys(); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// Close during the first poll: a waiter that joined meanwhile gets ErrClosed too.
func TestCloseWhileTheFirstOneLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t)
		acquire(t, j.holder, "k")
		j.gate.close()
		first := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		second := acquireFor(t.Context(), j.locker, "k")
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- j.locker.Close(context.Background()) }()
		synctest.Wait()
		j.gate.open()
		for _, w := range []*waiting{first, second} {
			if w.now(t); !errors.Is(w.err, lock.ErrClosed) {
				t.Errorf("%v, want ErrClosed", w.err)
			}
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// Close and the end of the claim at the same instant: each waiter gets a lease or ErrClosed.
func TestCloseRacesAGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		holder, granted := b.locker(t), 0
		for range 100 {
			locker := b.locker(t, byMessage)
			lease := acquire(t, holder, "k")
			w := acquireFor(t.Context(), locker, "k")
			synctest.Wait()
			closed := make(chan error, 1)
			go func() { closed <- locker.Close(context.Background()) }()
			release(t, lease)
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			switch <-w.done; {
			case w.err == nil:
				granted++
				release(t, w.claim.Lease)
			case !errors.Is(w.err, lock.ErrClosed):
				t.Errorf("%v, want ErrClosed", w.err)
			}
			synctest.Wait()
			if keys := b.server.Keys(); len(keys) > 0 {
				t.Fatalf("left: %q; Acquire: %v", keys, w.err)
			}
		}
		t.Logf("%d of 100 were granted", granted)
	})
}
