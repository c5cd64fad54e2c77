package lock_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// lossy is a key, a Locker behind a proxy that loses its first command which may write, and a rival without one.
type lossy struct {
	*testing.T
	b             redistest.Backend
	locker, rival *lock.Locker
	lease         *lock.Lease // that the operation takes, or is on
}

func (w *lossy) take() (err error) {
	w.lease, _, err = w.locker.TryAcquire(w.Context(), "k")
	return err
}

func (w *lossy) abandon() error {
	leave(w.T, w.rival, w.b, "k", lock.Abandoned)
	return nil
}

// lossyOperations are those that write. After each, the key is in the state want, whether the command or the reply was lost.
var lossyOperations = map[string]struct {
	opts      []lock.Option
	before    func(w *lossy) error
	operation func(w *lossy) error
	err       error
	want      lock.State
}{
	"claim":        {operation: (*lossy).take, want: lock.Held},
	"fenced claim": {opts: []lock.Option{lock.WithFencing()}, operation: (*lossy).take, want: lock.Held},
	"claim under a hold": {operation: func(w *lossy) error {
		claim, err := w.locker.Claim(w.Context(), "k", nil, time.Hour)
		w.lease = claim.Lease
		return err
	}, want: lock.Held},
	"claim of a foreign key": {
		before: func(w *lossy) error {
			return w.b.Client(w.T).LPush(w.Context(), w.rival.StorageKey("k"), "a list").Err()
		},
		operation: (*lossy).take, err: lock.ErrForeign,
	},
	"extend": {
		before:    (*lossy).take,
		operation: func(w *lossy) error { return w.lease.Extend(w.Context(), 2*time.Hour) },
		want:      lock.Held,
	},
	"settle": {
		before:    (*lossy).take,
		operation: func(w *lossy) error { return w.lease.Settle(w.Context(), []byte("v"), time.Hour) },
		want:      lock.Settled,
	},
	"release": {
		before:    (*lossy).take,
		operation: func(w *lossy) error { return w.lease.Release(w.Context()) },
		want:      lock.Free,
	},
	"resume": {
		before: func(w *lossy) error { w.lease = acquire(w.T, w.rival, "k"); return nil },
		operation: func(w *lossy) (err error) {
			w.lease, err = w.locker.Resume(w.Context(), "k", w.lease.Token())
			return err
		},
		want: lock.Held,
	},
	"forget": {
		before:    (*lossy).abandon,
		operation: func(w *lossy) error { return forget(w.Context(), w.locker, "k") },
		want:      lock.Free,
	},
	"settle abandoned": {
		before: (*lossy).abandon,
		operation: func(w *lossy) error {
			info := inspect(w.T, w.rival, "k", lock.Abandoned)
			value := func([]byte) ([]byte, error) { return []byte("v"), nil }
			return w.locker.SettleAbandoned(w.Context(), info.Key, info.Token, value, time.Hour)
		},
		want: lock.Settled,
	},
}

// isWrite matches a command that may change a claim, or make one.
func isWrite(c redistest.Command) bool {
	return slices.ContainsFunc(c.Args, func(arg []byte) bool {
		return bytes.HasPrefix(arg, []byte(claimStart)) && len(arg) > len(claimStart)
	})
}

// fault: reply to the claim dropped (proxy closes)
// fault: reply to Release dropped
// fault: reply to Settle dropped
// fault: a connection breaks before the command arrives
func TestReplyIsLost(t *testing.T) {
	t.Parallel()
	for name, test := range lossyOperations {
		for what, lose := range map[string]func(*redistest.Proxy, redistest.Match) *redistest.Rule{
			"reply": (*redistest.Proxy).DropReply, "command": (*redistest.Proxy).CutBefore,
		} {
			t.Run(name+", the "+what, func(t *testing.T) {
				onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker) {
					w := &lossy{T: t, b: b, locker: locker, rival: rival}
					if test.before != nil {
						must(t, test.before(w))
					}
					lost := lose(p, redistest.Nth(1, isWrite))
					if err := test.operation(w); !errors.Is(err, test.err) {
						t.Fatalf("%v, want %v", err, test.err)
					}
					lost.Wait(t)
					if test.err == nil {
						w.check(test.want)
					}
				}, append(test.opts, lock.WithTTL(time.Hour), lock.WithoutRenewal())...)
			})
		}
	}
}

func (w *lossy) check(want lock.State) {
	info := inspect(w.T, w.rival, "k", want)
	switch want {
	case lock.Held:
		if info.Token != w.lease.Token() || info.Fence != w.lease.Fence() {
			w.Errorf("the key has %+v, not the claim of the lease", info)
		}
		if info.HoldLeft > 0 { // a Release would make Close say that another command of the claim may arrive
			return
		}
		release(w.T, w.lease)
		inspect(w.T, w.rival, "k", lock.Free)
	case lock.Settled:
		if claim, err := w.rival.Look(w.Context(), "k"); err != nil || string(claim.Value) != "v" {
			w.Errorf("the key holds %q, %v, want v", claim.Value, err)
		}
	}
}
