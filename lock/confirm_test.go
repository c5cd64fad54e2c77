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

// A value that is removed between the claim and its confirmation is not returned either.
func TestValueThatIsGoneIsNotConfirmed(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	master, _, p := startReplicated(t)
	writer, locker := newLocker(t, master.Client(t), acknowledged), newLocker(t, p.Client(t), acknowledged)
	load(t, locker)
	if err := acquire(t, writer, "k").Settle(t.Context(), []byte("v"), time.Hour); err != nil {
		t.Fatal(err)
	}
	held := p.HoldRequest(redistest.Nth(1, redistest.Named("EVALSHA", "EVAL")))
	type result struct {
		claim lock.Claim
		err   error
	}
	done := make(chan result, 1)
	go func() {
		claim, err := locker.Claim(context.Background(), "k", nil, 0)
		done <- result{claim, err}
	}()
	held.Wait(t)
	if err := forget(t.Context(), writer, "k"); err != nil {
		t.Fatal(err)
	}
	held.Lift()
	if r := <-done; !errors.Is(r.err, lock.ErrSettled) || r.claim.Value != nil {
		t.Errorf("Claim: %+v, %v, want ErrSettled", r.claim, r.err)
	}
}

// Only values are confirmed, and only with WithReplicas: everything else takes one round trip.
func TestOnlyValuesAreConfirmed(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	master, _, p := startReplicated(t)
	writer := newLocker(t, master.Client(t))
	acquire(t, writer, "held")
	if err := acquire(t, writer, "settled").Settle(t.Context(), nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		key  string
		opts []lock.Option
		want int
	}{
		{"held", nil, 1}, {"settled", nil, 1},
		{"held", []lock.Option{acknowledged}, 1}, {"settled", []lock.Option{acknowledged}, 2},
	} {
		locker := newLocker(t, p.Client(t), test.opts...)
		load(t, locker)
		if _, err := locker.Claim(t.Context(), "settled", nil, 0); err != nil { // the server knows the script
			t.Fatal(err)
		}
		p.Reset()
		if _, err := locker.Claim(t.Context(), test.key, nil, 0); err != nil {
			t.Error(err)
		}
		if got := p.RoundTrips(); got != test.want {
			t.Errorf("%s, %d options: %d round trips, want %d", test.key, len(test.opts), got, test.want)
		}
	}
}
