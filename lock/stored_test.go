package lock_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// What the first release wrote. These files are never changed: every later release has to read them.
func TestReadsWhatTheFirstReleaseWrote(t *testing.T) {
	t.Parallel()
	claimed := time.UnixMilli(1795353600123)
	settled := claimed.Add(2500 * time.Millisecond)
	for name, want := range map[string]lock.Claim{
		"claim":             {State: lock.Held, Note: []byte("a note"), ClaimedAt: claimed},
		"claim-awaited":     {State: lock.Held, ClaimedAt: claimed},
		"claim-fenced-held": {State: lock.Abandoned, Note: []byte("a note"), ClaimedAt: claimed},
		"value":             {State: lock.Settled, Value: []byte("a value\x00\xff"), SettledAt: settled},
		"value-empty":       {State: lock.Settled, SettledAt: settled},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				stored := storedByRelease(t, name)
				locker := newLocker(t, b.Client(t))
				put := b.Client(t).Set(t.Context(), locker.StorageKey("k"), stored, 24*time.Hour)
				must(t, put.Err())
				got, err := locker.Claim(t.Context(), "k", nil, 0)
				if err != nil || got.State != want.State || !bytes.Equal(got.Note, want.Note) || !bytes.Equal(got.Value, want.Value) {
					t.Errorf("%+v, %v, want %+v", got, err, want)
				}
				if !got.ClaimedAt.Equal(want.ClaimedAt) || !got.SettledAt.Equal(want.SettledAt) {
					t.Errorf("claimed %v, settled %v, want %v, %v", got.ClaimedAt, got.SettledAt, want.ClaimedAt, want.SettledAt)
				}
				if info := inspect(t, locker, "k", want.State); info.Size != len(stored) {
					t.Errorf("Inspect: %+v", info)
				}
				wantErr(t, "Forget", forget(t.Context(), locker, "k"), nil)
				inspect(t, locker, "k", lock.Free)
			})
		})
	}
}

// The bytes written differ from those of the first release only in the token and the times.
func TestWritesWhatTheFirstReleaseReads(t *testing.T) {
	t.Parallel()
	const tokenAt, tokenEnd, claimTimeAt = 4, 20, 45
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		same := func(name string, timeAt int) {
			t.Helper()
			got, _ := b.Raw(t, locker.StorageKey("k"))
			want := storedByRelease(t, name)
			if len(got) != len(want) {
				t.Fatalf("%s: %d bytes, want %d", name, len(got), len(want))
			}
			mask := []byte(got)
			copy(mask[tokenAt:tokenEnd], want[tokenAt:])
			copy(mask[timeAt:timeAt+8], want[timeAt:])
			if !bytes.Equal(mask, want) {
				t.Errorf("%s: %q, want %q", name, mask, want)
			}
		}
		before := time.Now().Truncate(time.Millisecond)
		granted, err := locker.Claim(t.Context(), "k", []byte("a note"), 0)
		must(t, err)
		same("claim", claimTimeAt)
		within := func(what string, at time.Time) {
			t.Helper()
			if at.Before(before) || at.After(time.Now()) {
				t.Errorf("%s at %v, not between %v and now", what, at, before)
			}
		}
		met, err := locker.Claim(t.Context(), "k", nil, 0)
		must(t, err)
		within("claimed", met.ClaimedAt)
		must(t, granted.Lease.Settle(t.Context(), []byte("a value\x00\xff"), time.Hour))
		same("value", tokenEnd)
		if met, err = locker.Claim(t.Context(), "k", nil, 0); err != nil {
			t.Fatal(err)
		}
		within("settled", met.SettledAt)
	})
}

// A claim under a hold has the bytes that the first release writes by two commands, with a hold of one day. It stays for
// the lease and the hold, as there. A fence and a hold are read alike by instances of both.
func TestWritesAHoldThatTheFirstReleaseReads(t *testing.T) {
	t.Parallel()
	const tokenAt, fenceAt, holdAt, claimTimeAt, noteAt = 4, 21, 37, 45, 53
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		want := storedByRelease(t, "claim-fenced-held")
		hold := time.Duration(binary.BigEndian.Uint64(want[holdAt:])) * time.Millisecond
		locker := newLocker(t, b.Client(t), lock.WithFencing(), lock.WithoutRenewal())
		if _, err := locker.Claim(t.Context(), "k", want[noteAt:], hold); err != nil {
			t.Fatal(err)
		}
		stored, _ := b.Raw(t, locker.StorageKey("k"))
		got := []byte(stored)
		copy(got[tokenAt:], want[tokenAt:tokenAt+16])
		copy(got[fenceAt:], want[fenceAt:holdAt])
		copy(got[claimTimeAt:], want[claimTimeAt:noteAt])
		if !bytes.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if left := b.Client(t).PTTL(t.Context(), locker.StorageKey("k")).Val(); !around(left, hold+10*time.Second) {
			t.Errorf("the key stays for %v, want %v", left, hold+10*time.Second)
		}
	})
}

func storedByRelease(t *testing.T, name string) []byte {
	t.Helper()
	stored, err := os.ReadFile(filepath.Join("testdata", "stored", name))
	must(t, err)
	return stored
}

// go-redis's tracing prints the arguments of commands. Notes, values and tokens print as their lengths.
func TestArgumentsAreNotPrinted(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]lock.Option{"plain": nil, "fenced": {lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				var mu sync.Mutex
				var printed strings.Builder
				client := b.Client(t)
				client.AddHook(hook(func(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error {
					mu.Lock()
					for _, cmd := range cmds {
						fmt.Fprintf(&printed, "%v %x\n", cmd.Args(), cmd.Args())
					}
					mu.Unlock()
					return next(ctx)
				}))
				locker := newLocker(t, client, opts...)
				claim, err := locker.Claim(t.Context(), "k", []byte(secretNote), 0)
				lease := errorless(t, claim, err).Lease
				err = errors.Join(lease.Extend(t.Context(), time.Minute), lease.Settle(t.Context(), []byte(secretValue), time.Hour))
				errorless(t, lease, err)
				release(t, acquire(t, locker, "other"))
				mu.Lock()
				defer mu.Unlock()
				for _, secret := range []string{secretNote, secretValue, string(tokenBytes(lease))} {
					if all := printed.String(); strings.Contains(all, secret) || strings.Contains(all, fmt.Sprintf("%x", secret)) ||
						!strings.Contains(all, "bytes") {
						t.Errorf("%q is printed, or nothing: %s", secret, all)
					}
				}
			})
		})
	}
}
