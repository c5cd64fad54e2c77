package lock_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// A claim as it stands in Redis: what begins it, a token, whether its end is awaited, the fence, the hold, the time
// when it was claimed, the note. A value has the time when it was settled behind the token.
const (
	claimStart  = "OGc\x01"
	valueStart  = "OGv\x01"
	someToken   = "0123456789abcdef"
	noFence     = "0000000000000000"
	noHold      = "\x00\x00\x00\x00\x00\x00\x00\x00"
	someTime    = "\x00\x00\x01\x9a\xa9\x0c\xe8\x00" // 2025-11-22 02:58:08 UTC
	awaitedByte = len(claimStart) + len(someToken)
	holdByte    = awaitedByte + 1 + len(noFence)
	claimLength = holdByte + len(noHold) + len(someTime)
	valueLength = awaitedByte + len(someTime)
	maxOwner    = 128
)

// FuzzStored stores arbitrary bytes under a key, with or without an expiry. No call is granted the key, and the bytes
// stay as they are, except for the mark of a waiter in a claim. All calls agree on the State.
func FuzzStored(f *testing.F) {
	client := redistest.Mini(f).Client(f)
	once := lock.WithRetry(lock.Retry{Attempts: 1}) // Wait and Acquire look once
	long := lock.WithOpTimeout(time.Minute)         // on a busy machine
	lockers := []*lock.Locker{
		lock.New(client, "fuzz", once, long), lock.New(client, "fuzz", once, long, lock.WithFencing()),
	}
	f.Cleanup(func() {
		for _, locker := range lockers {
			if err := locker.Close(context.Background()); err != nil {
				f.Error(err)
			}
		}
	})
	for _, fence := range []string{noFence, "1763780288000000"} {
		for _, hold := range []string{noHold, "\x00\x00\x00\x00\x00\x36\xee\x80"} { // an hour
			for _, mark := range []string{"\x00", "\x01"} {
				f.Add([]byte(claimStart+someToken+mark+fence+hold+someTime), uint32(0))
				f.Add([]byte(claimStart+someToken+mark+fence+hold+someTime+"text\x00\xff"), uint32(1000))
				f.Add([]byte(claimStart+someToken+mark+fence+hold+someTime[:7]), uint32(time.Hour.Milliseconds()))
			}
		}
	}
	f.Add([]byte(valueStart+someToken+someTime), uint32(0))
	f.Add([]byte(settledText), uint32(1000))
	f.Add([]byte(valueStart+someToken+someTime[:7]), uint32(1000))
	f.Add([]byte(claimStart+someToken+"\x00"+noFence+noHold+someTime+someToken+"owner\xff\n"), uint32(1000))
	f.Add([]byte{}, uint32(0))
	f.Add([]byte("foreign"), uint32(1))
	f.Add([]byte(claimStart), uint32(0))
	f.Add([]byte(claimStart+someToken+"\x00"+noFence+"\xff"+noHold[1:]+someTime), uint32(0))
	f.Add([]byte(valueStart+someToken+"\x00"+noFence+noHold), uint32(0))

	key := lockers[0].StorageKey("k")
	f.Fuzz(func(t *testing.T, stored []byte, ttl uint32) { // in milliseconds, 0 for ever; miniredis's clock stands still
		for _, locker := range lockers {
			must(t, client.Set(t.Context(), key, stored, time.Duration(ttl)*time.Millisecond).Err())
			left := client.PTTL(t.Context(), key).Val()
			claim, err := locker.Claim(t.Context(), "k", []byte("another note"), 0)
			lease, ok, tryErr := locker.TryAcquire(t.Context(), "k")
			stays(t, client, key, stored)

			foreign := errors.Is(err, lock.ErrForeign)
			switch {
			case foreign && claim.State == 0:
			case err == nil && (claim.State == lock.Held || claim.State == lock.Abandoned):
				note := stored[claimLength:]
				owner, isLock := bytes.CutPrefix(note, stored[len(claimStart):awaitedByte])
				if isLock {
					note = nil
				}
				if !bytes.HasPrefix(stored, []byte(claimStart)) || !bytes.Equal(claim.Note, note) {
					t.Errorf("note %q", claim.Note)
				}
				wantInfo(t, locker, isLock, owner)
			case err == nil && claim.State == lock.Settled:
				if !bytes.HasPrefix(stored, []byte(valueStart)) || !bytes.Equal(claim.Value, stored[valueLength:]) {
					t.Errorf("value %q", claim.Value)
				}
			default:
				t.Fatalf("Claim: %v, %v", claim.State, err)
			}
			settled := claim.State == lock.Settled
			if ok || lease != nil || errors.Is(tryErr, lock.ErrForeign) != foreign || errors.Is(tryErr, lock.ErrSettled) != settled {
				t.Errorf("TryAcquire: %v, %v; Claim: %v, %v", ok, tryErr, claim.State, err)
			}

			marked := bytes.Clone(stored)
			if isClaim := !foreign && !settled; isClaim && marked[awaitedByte] == 0 {
				marked[awaitedByte] = 1
			}
			seen, waitErr := locker.Wait(t.Context(), "k")
			stays(t, client, key, marked)
			switch {
			case claim.State == lock.Held:
				if !errors.Is(waitErr, lock.ErrHeld) {
					t.Errorf("Wait for what is held: %v, %v", seen.State, waitErr)
				}
			case seen.State != claim.State || errors.Is(waitErr, lock.ErrForeign) != foreign ||
				!bytes.Equal(seen.Note, claim.Note) || !bytes.Equal(seen.Value, claim.Value):
				t.Errorf("Wait: %v %q %q, %v; Claim: %v, %v", seen.State, seen.Note, seen.Value, waitErr, claim.State, err)
			}
			if lease, err := locker.Acquire(t.Context(), "k"); lease != nil || errors.Is(err, lock.ErrForeign) != foreign ||
				errors.Is(err, lock.ErrSettled) != settled || errors.Is(err, lock.ErrHeld) == (foreign || settled) {
				t.Errorf("Acquire: %v; Claim: %v, %v", err, claim.State, err)
			}
			stays(t, client, key, marked)
			if got := client.PTTL(t.Context(), key).Val(); got != left {
				t.Errorf("it lasts for %v, and no more for %v", got, left)
			}
		}
	})
}

// wantInfo checks what Inspect says of a claim, which has an owner if it is a lock's.
func wantInfo(t *testing.T, locker *lock.Locker, isLock bool, owner []byte) {
	t.Helper()
	info, err := locker.Inspect(t.Context(), locker.StorageKey("k"))
	isBad := func(c rune) bool { return !unicode.IsPrint(c) }
	if err != nil || info.IsLock != isLock || strings.ContainsFunc(info.Owner, isBad) || !utf8.ValidString(info.Owner) {
		t.Errorf("%+v, %v", info, err)
	}
	isSame := len(owner) <= maxOwner && utf8.Valid(owner) && !bytes.ContainsFunc(owner, isBad)
	if isLock && isSame && info.Owner != string(owner) || !isLock && info.Owner != "" {
		t.Errorf("owner %q, want %q", info.Owner, owner)
	}
}

// stays fails the test unless the key holds want.
func stays(t *testing.T, client *redis.Client, key string, want []byte) {
	t.Helper()
	if got, err := client.Get(t.Context(), key).Bytes(); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("it is now %q, %v, want %q", got, err, want)
	}
}
