package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// A value that the replica does not have is not returned, no matter which Locker wrote it: a failover would lose it,
// and the operation would run again although its response was seen.
//
// fault: value met under WithReplicas, link to the replica cut
func TestValueIsNotHandedOutBeforeReplicasHaveIt(t *testing.T) {
	t.Parallel()
	master, replica, _ := startReplicated(t)
	writer := newLocker(t, master.Client(t), briefly)
	for name, opts := range map[string][]lock.Option{"plain": nil, "fenced": {lock.WithFencing()}} {
		locker := newLocker(t, master.Client(t), append(opts, briefly)...)
		patient := newLocker(t, master.Client(t), append(opts, acknowledged)...)
		load(t, locker)
		lease := acquire(t, writer, name)
		key := writer.StorageKey(name)

		replica.Pause(t)
		if err := lease.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, lock.ErrNotReplicated) {
			t.Errorf("%s: Settle: %v, want ErrNotReplicated", name, err)
		}
		unconfirmed := func(call string, err error) {
			t.Helper()
			if !errors.Is(err, lock.ErrSettled) || !errors.Is(err, lock.ErrNotReplicated) {
				t.Errorf("%s: %s: %v, want ErrSettled and ErrNotReplicated", name, call, err)
			}
		}
		claim, err := locker.Claim(t.Context(), name, nil, 0)
		unconfirmed("Claim", err)
		if claim.Value != nil || claim.Lease != nil {
			t.Errorf("%s: Claim has handed out %+v", name, claim)
		}
		_, ok, err := locker.TryAcquire(t.Context(), name)
		unconfirmed("TryAcquire", err)
		if ok {
			t.Errorf("%s: a lease on a key that holds a value", name)
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		claim, err = locker.Wait(brief, name)
		cancel()
		unconfirmed("Wait", err)
		if claim.Value != nil {
			t.Errorf("%s: Wait has handed out %q", name, claim.Value)
		}

		waits := waitFor(t.Context(), patient, name)
		before := expiry(t, master, key)
		replica.Resume(t)
		claim, err = patient.Claim(t.Context(), name, nil, 0)
		if err != nil || claim.State != lock.Settled || string(claim.Value) != "v" {
			t.Errorf("%s: Claim when the replica is back: %v %q, %v", name, claim.State, claim.Value, err)
		}
		if waits.end(t); waits.err != nil || string(waits.claim.Value) != "v" {
			t.Errorf("%s: Wait when the replica is back: %q, %v", name, waits.claim.Value, waits.err)
		}
		if got, _ := replica.Raw(t, key); got == "" {
			t.Errorf("%s: the replica does not have what was handed out", name)
		}
		if after := expiry(t, master, key); after.Sub(before) > 500*time.Millisecond {
			t.Errorf("%s: it expires at %v, and at %v before it was met", name, after, before)
		}
	}
}

// expiry returns when a key expires. A Settle in the background moves it by the difference between the times that it
// and the first one took to reach Redis. A retention that began anew would move it by more than the second of the Wait.
func expiry(t *testing.T, s *redistest.Server, key string) time.Time {
	t.Helper()
	left, err := s.Client(t).PTTL(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return time.Now().Add(left)
}
