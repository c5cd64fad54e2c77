package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// fault: TTL of 0, below 1 ms, negative
func TestWrongConfigurationPanics(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t).Client(t)
	var none context.Context
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })

	for want, f := range map[string]func(){
		"lock.New: client":           func() { lock.New(nil, "n") },
		"lock.New: namespace":        func() { lock.New(client, "") },
		"must be a text":             func() { lock.New(client, "a{b}") },
		"Ring":                       func() { lock.New(ring, "n") },
		"option 2 is nil":            func() { lock.New(client, "n", lock.WithFencing(), nil) },
		"WithTTL: 0s":                func() { lock.WithTTL(0) },
		"WithTTL: 999µs":             func() { lock.WithTTL(999 * time.Microsecond) },
		"WithTTL: -1s":               func() { lock.WithTTL(-time.Second) },
		"WithTTL: 87600h0":           func() { lock.WithTTL(lock.MaxHold + 1) },
		"WithOpTimeout":              func() { lock.WithOpTimeout(0) },
		"WithOpTimeout: 2562":        func() { lock.WithOpTimeout(math.MaxInt64) },
		"WithRetry":                  func() { lock.WithRetry(lock.Retry{Min: -1}) },
		"Min <= Max":                 func() { lock.WithRetry(lock.Retry{Min: 2, Max: 1}) },
		"Attempts >= 0":              func() { lock.WithRetry(lock.Retry{Attempts: -1}) },
		"WithReplicas: n is 0":       func() { lock.WithReplicas(0, time.Second) },
		"WithReplicas: 999.":         func() { lock.WithReplicas(1, time.Millisecond-1) },
		"WithReplicas: 500ms is not": func() { lock.New(client, "n", lock.WithReplicas(1, 500*time.Millisecond)) },
		"WithReplicas: 1s is not": func() {
			lock.New(client, "n", lock.WithReplicas(1, time.Second), lock.WithOpTimeout(time.Second))
		},
		"WithBaseContext: ctx is nil": func() { lock.WithBaseContext(none) },
		"lock.Scan: count":            func() { lock.None("n").Scan(t.Context(), 1001) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want one that has %q", got, want)
				}
			}()
			f()
		})
	}
}

// fault: the caller's ctx cancelled before, during, after
func TestLeaseContext(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "v"), time.Hour)
	lease, _, err := locker.TryAcquire(ctx, "k")
	cancel()
	if errorless(t, lease, err).Err() != nil || lease.Context().Value(valueKey{}) != "v" {
		t.Errorf("%v; the value %v, want that of the context given", lease.Err(), lease.Context().Value(valueKey{}))
	}
	if deadline, ok := lease.Context().Deadline(); ok {
		t.Errorf("the lease has the deadline %v", deadline)
	}
	if err := lease.Settle(ctx, nil, time.Hour); err != nil || lease.Err() != context.Canceled {
		t.Errorf("Settle on a cancelled context: %v; the lease: %v", err, lease.Err())
	}
}

// fault: TTL of 0, below 1 ms, negative
func TestTimesAreRefused(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	locker := newLocker(t, b.Client(t))
	lease := acquire(t, locker, "k")
	for _, d := range []time.Duration{-time.Second, 0, 999 * time.Microsecond, lock.MaxHold + 1} {
		if err := lease.Extend(t.Context(), d); err == nil {
			t.Errorf("Extend(%v) is accepted", d)
		}
	}
	for _, d := range []time.Duration{-time.Second, 0, 999 * time.Microsecond} {
		if err := lease.Settle(t.Context(), nil, d); err == nil {
			t.Errorf("Settle for %v is accepted", d)
		}
	}
	for _, hold := range []time.Duration{-time.Second, 1, 999 * time.Microsecond, lock.MaxHold + 1} {
		if claim, err := locker.Claim(t.Context(), "new", nil, hold); err == nil || claim.Lease != nil {
			t.Errorf("a hold of %v: %v, %v, want it refused", hold, claim.State, err)
		}
	}
	if lease.Err() != nil || len(b.Keys(t)) != 1 {
		t.Errorf("the lease: %v, keys %q", lease.Err(), b.Keys(t))
	}
	for key, hold := range map[string]time.Duration{"least": time.Millisecond, "most": lock.MaxHold} {
		claimUnder(t, locker, key, hold)
	}
}

// What a key holds, as Claim, Look and Wait return it. Look changes neither a byte nor the expiry, and never takes a key.
func TestLook(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		for _, state := range []lock.State{lock.Free, lock.Held, lock.Abandoned, lock.Settled} {
			key, note, value := state.String(), "", ""
			switch state {
			case lock.Held, lock.Abandoned:
				note = secretNote
			case lock.Settled:
				value = secretValue
			}
			if state != lock.Free {
				leave(t, locker, b, key, state)
			}
			before, _ := b.Raw(t, locker.StorageKey(key))
			look, err := locker.Look(t.Context(), key)
			if after, _ := b.Raw(t, locker.StorageKey(key)); after != before {
				t.Errorf("%s: it is now %q, was %q", key, after, before)
			}
			calls := []lock.Claim{look}
			if state != lock.Free { // which Claim would take
				claim, claimErr := locker.Claim(t.Context(), key, nil, 0)
				calls, err = append(calls, claim), errors.Join(err, claimErr)
			}
			if state != lock.Held {
				claim, waitErr := locker.Wait(t.Context(), key)
				calls, err = append(calls, claim), errors.Join(err, waitErr)
			}
			for _, claim := range calls {
				if err != nil || claim.State != state || string(claim.Note) != note || string(claim.Value) != value ||
					claim.Key != locker.StorageKey(key) || claim.Lease != nil {
					t.Errorf("%s: %+v, %v", key, claim, err)
				}
				if claim.ClaimedAt.IsZero() != (note == "") || claim.SettledAt.IsZero() != (value == "") {
					t.Errorf("%s: claimed at %v, settled at %v", key, claim.ClaimedAt, claim.SettledAt)
				}
			}
		}
	})
}

// Operators see the owner of a lock, and nobody else does. A claim has none, also one whose note looks like a lock's.
func TestOwner(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, _ redistest.Backend, locker *lock.Locker) {
		wantOwner := func(want string) {
			t.Helper()
			info := inspect(t, locker, "k", lock.Held)
			found, _ := scanned(t, locker, 100)
			if !info.IsLock || info.Owner != want || info.ClaimedAt.IsZero() || found[info.Key] != lock.Held {
				t.Errorf("%+v, want the owner %q; the scan: %v", info, want, found)
			}
		}
		for _, owner := range []string{"", "Zürich 夜", strings.Repeat("x", maxOwner)} {
			lease, _, err := locker.TryAcquire(lock.NewOwnerContext(t.Context(), owner), "k")
			err = errors.Join(err, errorless(t, lease, err).Extend(t.Context(), time.Minute))
			if wantOwner(owner); err != nil {
				t.Error(err)
			}
			if met, err := locker.Claim(t.Context(), "k", nil, 0); met.State != lock.Held || met.Note != nil || err != nil {
				t.Errorf("Claim meets %+v, %v", met, err)
			}
			next := acquireFor(lock.NewOwnerContext(t.Context(), "next"), locker, "k")
			eventually(t, "a waiter", func() bool { return locker.Stats().Waiters == 1 })
			release(t, lease)
			if next.end(t); next.err != nil {
				t.Fatal(next.err)
			}
			wantOwner("next")
			release(t, next.claim.Lease)
		}
		ctx := lock.NewOwnerContext(t.Context(), "nobody")
		claim, err := locker.Claim(ctx, "k", []byte(someToken+secretNote), time.Hour)
		if info := inspect(t, locker, "k", lock.Held); err != nil || info.IsLock || info.Owner != "" {
			t.Errorf("a claim: %v, %+v", err, info)
		}
		if met, err := locker.Look(t.Context(), "k"); string(met.Note) != someToken+secretNote || err != nil {
			t.Errorf("note %q, %v", met.Note, err)
		}
		release(t, claim.Lease)
	})
}

func TestOwnerIsRefused(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	for _, owner := range []string{strings.Repeat("x", maxOwner+1), "two\nlines", "\x1b[2J", "right to left \u202e", "\xff"} {
		ctx := lock.NewOwnerContext(t.Context(), owner)
		_, _, tried := locker.TryAcquire(ctx, "k")
		_, acquired := locker.Acquire(ctx, "k")
		_, resumed := locker.Resume(ctx, "k", lockToken)
		for _, err := range []error{tried, acquired, resumed} {
			if err == nil || !strings.Contains(err.Error(), "owner") {
				t.Errorf("with %q: %v", owner, err)
			}
		}
	}
	inspect(t, locker, "k", lock.Free)
}
