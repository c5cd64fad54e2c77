package lock_test

import (
	"embed"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// During an upgrade, instances from before a claim had its hold share keys with today's. Their scripts are kept here.
//
//go:embed testdata/first/*.lua
var firstScripts embed.FS

// firstLease does to a key what a lease of such an instance did, by its commands.
type firstLease struct {
	t      *testing.T
	client redis.UniversalClient
	key    string
	head   string // of its claim
	token  uuid.UUID
}

func newFirstLease(t *testing.T, client redis.UniversalClient, key string) *firstLease {
	token := uuid.New()
	return &firstLease{t: t, client: client, key: key, token: token, head: "OGc\x01" + string(token[:])}
}

func (l *firstLease) script(name string, args ...any) (any, error) {
	l.t.Helper()
	source, err := firstScripts.ReadFile("testdata/first/" + name + ".lua")
	if err != nil {
		l.t.Fatal(err)
	}
	return l.client.Eval(l.t.Context(), string(source), []string{l.key}, args...).Result()
}

// run is script, for one that must return want: the head of what the key held, or nil if it was absent.
func (l *firstLease) run(want any, name string, args ...any) {
	l.t.Helper()
	got, err := l.script(name, args...)
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	if err != nil || got != want {
		l.t.Fatalf("%s: %q, %v, want %q", name, got, err, want)
	}
}

// claim returns what the key held, nil if it is claimed now.
func (l *firstLease) claim(lease time.Duration) any {
	l.t.Helper()
	now := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))
	claim := l.head + "\x00" + "0000000000000000" + "\x00\x00\x00\x00\x00\x00\x00\x00" + string(now) + "a note"
	granted, err := l.client.SetNX(l.t.Context(), l.key, claim, lease).Result()
	if err != nil {
		l.t.Fatal(err)
	}
	if granted {
		return nil
	}
	found, err := l.client.Get(l.t.Context(), l.key).Result()
	if err != nil {
		l.t.Fatal(err)
	}
	return found
}

func (l *firstLease) hold(hold, lease time.Duration) {
	l.t.Helper()
	bytes := binary.BigEndian.AppendUint64(nil, uint64(hold.Milliseconds()))
	l.run(l.head, "hold", l.head, bytes, hold.Milliseconds(), lease.Milliseconds(), 0)
}

func (l *firstLease) value() string {
	return "OGv\x01" + string(l.token[:]) + string(binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))) + "first"
}

func TestMeetsAClaimOfBeforeTheHold(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client)
		first := newFirstLease(t, client, locker.StorageKey("k"))
		meets := func(want lock.State) lock.Claim {
			t.Helper()
			c, err := locker.Claim(t.Context(), "k", nil, time.Hour)
			if err != nil || c.State != want {
				t.Fatalf("%v, %v, want %v", c.State, err, want)
			}
			return c
		}

		if found := first.claim(time.Minute); found != nil {
			t.Fatalf("found %q", found)
		}
		meets(lock.Held)
		if _, err := locker.Resume(t.Context(), "k", first.token.String()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Resume: %v, want ErrLost", err)
		}
		first.hold(time.Hour, time.Minute)
		meets(lock.Held)
		first.run(first.head, "extend", first.head, time.Minute.Milliseconds(), "")
		first.run(first.head, "settle", first.head, first.value(), time.Hour.Milliseconds(), "publish")
		if c := meets(lock.Settled); string(c.Value) != "first" {
			t.Errorf("value %q", c.Value)
		}

		client.Del(t.Context(), first.key)
		first.claim(time.Minute)
		first.hold(time.Hour, time.Minute)
		first.run(first.head, "release", first.head, "publish")
		must(t, meets(lock.Granted).Lease.Release(t.Context()))

		// It died: only the hold is left of its claim.
		first.claim(time.Minute)
		first.hold(time.Hour, time.Minute)
		client.PExpire(t.Context(), first.key, 59*time.Minute)
		if c := meets(lock.Abandoned); string(c.Note) != "a note" {
			t.Errorf("note %q", c.Note)
		}
	})
}

func TestAnInstanceOfBeforeTheHoldMeetsAClaim(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client)
		first := newFirstLease(t, client, locker.StorageKey("k"))
		granted, err := locker.Claim(t.Context(), "k", []byte("today's note"), time.Hour)
		must(t, err)
		stored, ok := first.claim(time.Minute).(string)
		if !ok {
			t.Fatal("it was granted a claimed key")
		}
		todaysHead := stored[:20]

		// Its caller waits: its script marks the claim, and reads the lease and the hold.
		found, err := first.script("claim", "", "", time.Minute.Milliseconds(), "OGc\x01")
		must(t, err)
		left := time.Duration(found.([]any)[1].(int64)) * time.Millisecond
		if !around(left-time.Hour, 10*time.Second) {
			t.Errorf("it reads %v of a lease", left-time.Hour)
		}

		// What it does late to a claim of its own leaves today's.
		hold := binary.BigEndian.AppendUint64(nil, uint64(time.Hour.Milliseconds()))
		first.run(todaysHead, "hold", first.head, hold, time.Hour.Milliseconds(), time.Minute.Milliseconds(), 0)
		first.run(todaysHead, "extend", first.head, time.Minute.Milliseconds(), "")
		first.run(todaysHead, "release", first.head, "publish")
		first.run(todaysHead, "settle", first.head, first.value(), time.Hour.Milliseconds(), "publish")

		woken := client.Subscribe(t.Context(), first.key)
		t.Cleanup(func() { _ = woken.Close() })
		if _, err := woken.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		must(t, granted.Lease.Settle(t.Context(), []byte("today"), time.Hour))
		if _, err := woken.ReceiveMessage(t.Context()); err != nil {
			t.Errorf("its waiter is not woken: %v", err)
		}
		if got := first.claim(time.Minute); got == nil || got.(string)[28:] != "today" {
			t.Errorf("it finds %q", got)
		}
	})
}
