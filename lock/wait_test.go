package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// Each way to end a claim wakes its waiters, on a server of any kind, in any process.
func TestMessageWakes(t *testing.T) {
	t.Parallel()
	operate := func(name string) func(*lock.Locker, *lock.Lease) error {
		return func(l *lock.Locker, lease *lock.Lease) error {
			info, err := l.Inspect(context.Background(), l.StorageKey("k"))
			return errors.Join(err, overrides[name](context.Background(), l, info))
		}
	}
	for name, test := range map[string]struct {
		leave lock.State // what they wait for, for a Wait is over when it is abandoned
		end   func(*lock.Locker, *lock.Lease) error
		then  lock.State
	}{
		"release": {lock.Held, func(_ *lock.Locker, l *lock.Lease) error { return l.Release(context.Background()) }, lock.Free},
		"settle": {lock.Held, func(_ *lock.Locker, l *lock.Lease) error {
			return l.Settle(context.Background(), []byte("v"), time.Hour)
		}, lock.Settled},
		"forget":           {lock.Held, operate("forget even if live"), lock.Free},
		"forget abandoned": {lock.Abandoned, operate("forget"), lock.Free},
		"settle abandoned": {lock.Abandoned, operate("settle"), lock.Settled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				holder, locker := newLocker(t, b.Client(t), lock.WithoutRenewal()), newLocker(t, b.Client(t), byMessage)
				lease := leave(t, holder, b, "k", test.leave)
				var waits []*waiting
				if test.leave == lock.Held {
					waits = append(waits, waitFor(t.Context(), locker, "k"))
				}
				takes := acquireFor(t.Context(), locker, "k")
				awaitMark(t, b, locker.StorageKey("k"))
				if err := test.end(holder, lease); err != nil {
					t.Error(err)
				}
				takes.end(t)
				if settled := errors.Is(takes.err, lock.ErrSettled); settled != (test.then == lock.Settled) {
					t.Errorf("Acquire: %v", takes.err)
				} else if !settled {
					release(t, takes.claim.Lease)
				}
				for _, w := range waits {
					if w.end(t); w.err != nil || w.claim.State != test.then {
						t.Errorf("Wait: %v, %v", w.claim.State, w.err)
					}
				}
			})
		})
	}
}

func TestNothingIsPublishedWhereNobodyWaits(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		all := b.Client(t).PSubscribe(t.Context(), "*")
		t.Cleanup(func() { _ = all.Close() })
		if _, err := all.Receive(t.Context()); err != nil { // the subscription
			t.Fatal(err)
		}
		release(t, acquire(t, locker, "released"))
		must(t, acquire(t, locker, "settled").Settle(t.Context(), nil, time.Hour))
		must(t, b.Client(t).Publish(t.Context(), "the end", "").Err())
		if m, err := all.ReceiveMessage(t.Context()); err != nil || m.Channel != "the end" {
			t.Errorf("published: %v, %v", m, err)
		}
	})
}

// fault: missed wake-up, subscriber reconnects
func TestMissedMessage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		locker := newLocker(t, p.Client(t))
		lease := acquire(t, rival, "k")
		deaf := p.SwallowReply(redistest.Named("SUBSCRIBE"))
		waits := waitFor(t.Context(), locker, "k")
		deaf.Wait(t)
		release(t, lease)
		if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
			t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
		}
	})
}

// fault: missed wake-up, subscriber reconnects
func TestSubscriberReconnects(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		locker := newLocker(t, p.Client(t), byMessage)
		lease := acquire(t, rival, "k")
		waits := waitFor(t.Context(), locker, "k")
		awaitMark(t, b, locker.StorageKey("k"))
		again := p.HoldReply(redistest.Named("SUBSCRIBE"))
		p.Cut()
		again.Wait(t)
		if err := lease.Release(t.Context()); err != nil { // while nobody hears it
			t.Fatal(err)
		}
		again.Lift()
		if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
			t.Errorf("Wait: %v, %v, want free: what was missed is looked for", waits.claim.State, waits.err)
		}
	})
}

// A subscription that the server refuses for a time is made when the server allows it. The waiter does not poll: only
// the message can wake it.
//
// fault: SUBSCRIBE is refused once
func TestSubscriptionIsRefusedForATime(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	srv.Since(t, "6.2", "a SUBSCRIBE that is refused")
	p := redistest.NewProxy(t, srv.Addr())
	holder, locker := newLocker(t, srv.Client(t)), newLocker(t, p.Client(t), byMessage)
	lease := acquire(t, holder, "k")
	refused := p.HoldReply(redistest.Named("SUBSCRIBE"))
	permit(t, srv, "resetchannels")
	waits := waitFor(t.Context(), locker, "k")
	refused.Wait(t)
	permit(t, srv, "allchannels")
	refused.Lift()
	awaitSubscribers(t, srv, locker.StorageKey("k"), 1)
	release(t, lease)
	if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
		t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
	}
	closeWithin(t, locker)
}
