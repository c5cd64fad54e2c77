package lock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

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

func tokenBytes(lease *lock.Lease) []byte {
	token := uuid.MustParse(lease.Token())
	return token[:]
}

// Whatever the old lease and others do, the new one has the key, and its end wakes a caller that has waited since the old
// one's time.
func TestResume(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		ctx, opts := t.Context(), []lock.Option{lock.WithTTL(time.Hour), byMessage}
		first := acquire(t, locker, "k")
		if first.Fence() > 0 {
			opts = append(opts, lock.WithFencing())
		}
		other := newLocker(t, b.Client(t), opts...)
		waits := acquireFor(ctx, other, "k")
		awaitMark(t, b, locker.StorageKey("k"))
		second, err := other.Resume(lock.NewOwnerContext(ctx, "worker"), "k", first.Token())
		must(t, err)
		if second.Token() == first.Token() || (second.Fence() > first.Fence()) != (first.Fence() > 0) {
			t.Errorf("token %s after %s, fence %d after %d", second.Token(), first.Token(), second.Fence(), first.Fence())
		}
		_, again := locker.Resume(ctx, "k", first.Token())
		_, anothers := locker.Resume(ctx, "k", uuid.NewString())
		_, nothing := locker.Resume(ctx, "k", "no token")
		for what, err := range map[string]error{
			"Extend": first.Extend(ctx, time.Minute), "Settle": first.Settle(ctx, nil, time.Hour), "Release": first.Release(ctx),
			"Resume": again, "Resume with a wrong token": anothers, "Resume with none": nothing,
		} {
			if !errors.Is(err, lock.ErrLost) || strings.Contains(err.Error(), first.Token()) {
				t.Errorf("%s: %v, want ErrLost", what, err)
			}
		}
		info := inspect(t, locker, "k", lock.Held)
		if info.Token != second.Token() || info.Fence != second.Fence() || !around(info.LeaseLeft, time.Hour) || info.Owner != "worker" {
			t.Errorf("the key has %+v, want the token %s, the fence %d", info, second.Token(), second.Fence())
		}
		third := resume(t, locker, "k", second.Token())
		if joined, ok, err := locker.TryAcquire(lock.NewContext(ctx, third), "k"); !ok || err != nil || joined.Token() != third.Token() {
			t.Errorf("re-entry: %v, %v", ok, err)
		} else {
			release(t, joined)
		}
		wantErr(t, "Release", second.Release(ctx), lock.ErrLost)
		release(t, third)
		if waits.end(t); waits.err != nil || third.Fence() > 0 && waits.claim.Lease.Fence() <= third.Fence() {
			t.Fatalf("the waiter: %v", waits.err)
		}
		release(t, waits.claim.Lease)
		if _, err := locker.Resume(ctx, "k", third.Token()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("of a free key: %v, want ErrLost", err)
		}
	})
}

// errorless returns v, and fails the test if there is an error.
func errorless[V any](t *testing.T, v V, err error) V {
	t.Helper()
	must(t, err)
	return v
}

// A value that is pending in this process is stored, and its lease is not resumed.
//
// fault: a Settle gets no reply, and the lease's token is given away
func TestResumeOfAPendingValue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
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
