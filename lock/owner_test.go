package lock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// wantOwner checks what operators see of a lock.
func wantOwner(t *testing.T, locker *lock.Locker, key, want string) {
	t.Helper()
	info := inspect(t, locker, key, lock.Held)
	if !info.IsLock || info.Owner != want || info.ClaimedAt.IsZero() {
		t.Errorf("Inspect: owner %q, %+v, want %q", info.Owner, info, want)
	}
	for found, err := range locker.Scan(t.Context(), 100) {
		if err != nil {
			t.Fatal(err)
		}
		for _, scanned := range found.Infos {
			if scanned.Key == info.Key && scanned.Owner != want {
				t.Errorf("Scan: owner %q, want %q", scanned.Owner, want)
			}
		}
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, _ redistest.Backend, locker *lock.Locker) {
		for _, owner := range []string{"", "batch-7: nightly report", "Zürich 夜", strings.Repeat("x", lock.MaxOwner)} {
			ctx := lock.NewOwnerContext(t.Context(), owner)
			lease, ok, err := locker.TryAcquire(ctx, "k")
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			wantOwner(t, locker, "k", owner)
			if met, err := locker.Claim(t.Context(), "k", nil, 0); met.State != lock.Held || met.Note != nil || err != nil {
				t.Errorf("Claim meets %+v, %v", met, err)
			}

			next := make(chan *lock.Lease)
			go func() {
				lease, err := locker.Acquire(lock.NewOwnerContext(t.Context(), "next"), "k")
				if err != nil {
					t.Error(err)
				}
				next <- lease
			}()
			eventually(t, "a waiter", func() bool { return locker.Stats().Waiters == 1 })
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			lease = <-next
			wantOwner(t, locker, "k", "next")
			if err := lease.Extend(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			wantOwner(t, locker, "k", "next")
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
			inspect(t, locker, "k", lock.Free)
		}
	})
}

// A claim has no owner, also one whose note looks like a lock's: operators do not see it.
func TestClaimHasNoOwner(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		ctx := lock.NewOwnerContext(t.Context(), "nobody")
		for _, note := range []string{"", secretNote, someToken + secretNote} {
			claim, err := locker.Claim(ctx, "k", []byte(note), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if info := inspect(t, locker, "k", lock.Held); info.IsLock || info.Owner != "" || info.Size != claimLength+len(note) {
				t.Errorf("%+v", info)
			}
			if met, err := locker.Look(t.Context(), "k"); string(met.Note) != note || err != nil {
				t.Errorf("note %q, %v, want %q", met.Note, err, note)
			}
			if raw, _ := b.Raw(t, claim.Key); strings.Contains(raw, "nobody") {
				t.Errorf("stored: %q", raw)
			}
			if err := claim.Lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestOwnerIsRefused(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		for _, owner := range []string{
			strings.Repeat("x", lock.MaxOwner+1), "two\nlines", "\x1b[2J", "right to left \u202e", "\xff",
		} {
			ctx := lock.NewOwnerContext(t.Context(), owner)
			if _, ok, err := locker.TryAcquire(ctx, "k"); ok || err == nil || !strings.Contains(err.Error(), "owner") {
				t.Errorf("TryAcquire with %q: %t, %v", owner, ok, err)
			}
			if _, err := locker.Acquire(ctx, "k"); err == nil || !strings.Contains(err.Error(), "owner") {
				t.Errorf("Acquire with %q: %v", owner, err)
			}
		}
		inspect(t, locker, "k", lock.Free)
	})
}

// What another program has written as an owner is bounded, and cannot change an operator's terminal.
func TestStoredOwnerIsMadePrintable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		for stored, want := range map[string]string{
			"a\x1b[2J\nb\u202e":                    "a\ufffd[2J\ufffdb\ufffd",
			"\xff":                                 "\ufffd",
			strings.Repeat("x", lock.MaxOwner+100): strings.Repeat("x", lock.MaxOwner),
		} {
			claim := claimStart + someToken + "\x00" + noFence + noHold + someTime + someToken + stored
			if err := b.Client(t).Set(t.Context(), locker.StorageKey("k"), claim, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			wantOwner(t, locker, "k", want)
		}
	})
}

// During an upgrade, an instance that does not know owners shares a lock with today's.
func TestAnInstanceOfBeforeOwnersMeetsALock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client)
		first := newFirstLease(t, client, locker.StorageKey("k"))
		lease, err := locker.Acquire(lock.NewOwnerContext(t.Context(), "today's"), "k")
		if err != nil {
			t.Fatal(err)
		}
		stored, held := first.claim(time.Minute).(string)
		if !held {
			t.Fatal("it was granted a key that is held")
		}
		todaysHead := stored[:20]
		if _, err := first.script("claim", "", "", time.Minute.Milliseconds(), "OGc\x01"); err != nil { // its waiter marks
			t.Fatal(err)
		}
		first.run(todaysHead, "extend", first.head, time.Minute.Milliseconds(), "")
		first.run(todaysHead, "release", first.head, "publish")
		wantOwner(t, locker, "k", "today's")

		woken := client.Subscribe(t.Context(), first.key)
		t.Cleanup(func() { _ = woken.Close() })
		if _, err := woken.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := woken.ReceiveMessage(t.Context()); err != nil {
			t.Errorf("its waiter is not woken: %v", err)
		}
		if found := first.claim(time.Minute); found != nil {
			t.Errorf("the key is not free: %q", found)
		}
		info := inspect(t, locker, "k", lock.Held)
		if info.Owner != "" || info.IsLock {
			t.Errorf("its claim has the owner %q", info.Owner)
		}
		if _, ok, err := locker.TryAcquire(context.Background(), "k"); ok || err != nil {
			t.Errorf("today's: %t, %v", ok, err)
		}
	})
}
