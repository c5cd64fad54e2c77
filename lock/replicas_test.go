package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// acknowledged waits for one replica for as long as a busy machine may need.
var acknowledged = lock.WithReplicas(1, 40*time.Second)

// briefly is for a replica that acknowledges nothing.
var briefly = lock.WithReplicas(1, 300*time.Millisecond)

// While the replica stands still, nothing that is written counts, and no value is handed out. What does not write is as
// always.
//
// fault: replica stopped, WithReplicas(1)
// fault: value met under WithReplicas, link to the replica cut
func TestReplicaIsStopped(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	for name, opts := range map[string][]lock.Option{"plain": {briefly}, "fenced": {briefly, lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t)
			replica := redistest.StartReplica(t, master)
			plain := newLocker(t, master.Client(t), lock.WithoutRenewal())
			locker := newLocker(t, master.Client(t), append(opts, lock.WithoutRenewal(), lock.WithTTL(time.Hour))...)
			ctx, value := t.Context(), func([]byte) ([]byte, error) { return []byte("v"), nil }
			load(t, plain)
			extended, settled := granted(t, locker, "extended", 0), granted(t, locker, "settled", 0)
			released, brief := granted(t, locker, "released", time.Hour), granted(t, locker, "released at once", 0)
			until := extended.Until()
			leave(t, plain, master, "value", lock.Settled)
			leave(t, plain, master, "abandoned", lock.Abandoned)
			taken := acquire(t, plain, "lock")
			replica.Pause(t)
			stays := inspect(t, plain, "value", lock.Settled).TTL
			for what, do := range map[string]func() error{
				"TryAcquire": func() error { _, _, err := locker.TryAcquire(ctx, "tried"); return err },
				"Acquire":    func() error { _, err := locker.Acquire(ctx, "acquired"); return err },
				"Claim":      func() error { _, err := locker.Claim(ctx, "claimed", nil, time.Hour); return err },
				"Resume":     func() error { _, err := locker.Resume(ctx, "lock", taken.Token()); return err },
				"Extend":     func() error { return extended.Extend(ctx, 2*time.Hour) },
				"Settle":     func() error { return settled.Settle(ctx, []byte("v"), time.Hour) },
				"Release":    func() error { return released.Release(ctx) },
				"SettleAbandoned": func() error {
					info := inspect(t, plain, "abandoned", lock.Abandoned)
					return locker.SettleAbandoned(ctx, info.Key, info.Token, value, time.Hour)
				},
			} {
				if err := do(); !errors.Is(err, lock.ErrNotReplicated) {
					t.Errorf("%s: %v, want ErrNotReplicated", what, err)
				}
			}
			for what, do := range map[string]func() (lock.Claim, error){
				"Claim": func() (lock.Claim, error) { return locker.Claim(ctx, "value", nil, 0) },
				"Look":  func() (lock.Claim, error) { return locker.Look(ctx, "value") },
				"Wait": func() (claim lock.Claim, err error) {
					for limit := time.Second; limit < time.Minute && !errors.Is(err, lock.ErrSettled); limit *= 2 {
						ctx, cancel := context.WithTimeout(ctx, limit) // too short for a poll on a busy machine
						claim, err = locker.Wait(ctx, "value")
						cancel()
					}
					return claim, err
				},
			} {
				claim, err := do()
				if !errors.Is(err, lock.ErrSettled) || !errors.Is(err, lock.ErrNotReplicated) || claim.Value != nil {
					t.Errorf("%s of a value: %q, %v, want ErrSettled and ErrNotReplicated", what, claim.Value, err)
				}
			}
			if claim, err := locker.Look(ctx, "extended"); err != nil || claim.State != lock.Held {
				t.Errorf("another's claim: %v, %v, want held", claim.State, err)
			}
			if !extended.Until().Equal(until) || extended.Err() != nil || settled.Err() != nil {
				t.Errorf("the end of a lease has moved by %v; %v, %v", extended.Until().Sub(until), extended.Err(), settled.Err())
			}
			release(t, brief) // which waits for no replica
			waits := waitFor(ctx, newLocker(t, master.Client(t), acknowledged), "value")

			replica.Resume(t)
			<-settled.Context().Done()
			if waits.end(t); waits.err != nil || string(waits.claim.Value) != secretValue {
				t.Errorf("Wait: %q, %v, want the value", waits.claim.Value, waits.err)
			}
			closeWithin(t, locker)
			for key, want := range map[string]string{
				"tried": "", "acquired": "", "claimed": "", "released": "", "settled": "v", "abandoned": "v", "value": secretValue,
			} {
				got, _ := replica.Raw(t, locker.StorageKey(key))
				if !strings.HasSuffix(got, want) || (got == "") != (want == "") {
					t.Errorf("%s: the replica has %q, want %q", key, got, want)
				}
			}
			if left := inspect(t, plain, "value", lock.Settled).TTL; left > stays {
				t.Errorf("the value stays for %v, and for %v before it was met", left, stays)
			}
		})
	}
}

// A reply is lost, and the next try, on another connection, finds what the first one has written. A WAIT on a
// connection without a write returns at once, so the next try writes again. The release of a claim under a hold, which a
// failover would bring back for as long as its hold, is sent until the replica has it.
//
// fault: replica stopped, WithReplicas(1)
func TestUnacknowledgedWriteIsSeenAgain(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]lock.Option{"plain": {briefly}, "fenced": {briefly, lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t)
			replica, p := redistest.StartReplica(t, master), redistest.NewProxy(t, master.Addr())
			load(t, newLocker(t, master.Client(t), opts[1:]...))
			locker := newLocker(t, p.Client(t), append(opts, lock.WithTTL(time.Hour))...)
			lease := granted(t, locker, "k", hold)
			replica.Pause(t)
			for what, do := range map[string]func() error{
				"TryAcquire": func() error { _, _, err := locker.TryAcquire(t.Context(), "new"); return err },
				"Release":    func() error { return lease.Release(t.Context()) },
			} {
				lost := p.DropReply(redistest.Nth(1, isWrite))
				if err := do(); !errors.Is(err, lock.ErrNotReplicated) || lost.Hits() != 1 {
					t.Errorf("%s: %v, want ErrNotReplicated; %d replies were lost", what, err, lost.Hits())
				}
			}
			replica.Resume(t)
			closeWithin(t, locker)
			wantNoClaims(t, replica)
		})
	}
}
