package lease_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// key is that of every lease of these tests.
var key = store.Namespace("ns").Key("key").Text

// headLen is how much longer than its content a value is.
var headLen = len(store.NewValue(store.NewToken(), time.Now(), 0))

// settlePending settles n leases in vain, with values of that many bytes.
func (w *world) settlePending(n, size int) {
	w.Helper()
	value := strings.Repeat("v", size-headLen)
	for range n {
		_, h := w.newLease(w.backend)
		wantIs(w.T, "Settle", settle(h, value, time.Hour), lease.ErrPending)
	}
}

// The backlog takes values until they and what they cost are as much as it may hold. One byte more drops the oldest.
func TestBacklogIsFullToTheByte(t *testing.T) {
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		wantPending := func(pending, givenUp int) {
			w.Helper()
			if s := w.backlog.Stats(); s.Pending != pending || s.GivenUp != uint64(givenUp) {
				w.Errorf("%+v, want %d pending and %d given up", s, pending, givenUp)
			}
		}
		const quarter = lease.MaxBacklog/4 - lease.PendingCost
		w.settlePending(4, quarter)
		wantPending(4, 0)
		w.settlePending(1, quarter)
		wantPending(4, 1)
		w.settlePending(1, headLen)
		wantPending(4, 2)
		w.settlePending(1, lease.MaxBacklog-lease.PendingCost)
		wantPending(1, 6)
	}, withoutRenewal)
}

// The oldest value is the one that makes room, and the one that is stored first, whatever was tried last.
func TestOldestValueFirst(t *testing.T) {
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		const third = lease.MaxBacklog/3 - lease.PendingCost
		for i := range 4 {
			_, h := w.newLease(w.backend)
			wantIs(t, "Settle", settle(h, strings.Repeat(fmt.Sprint(i), third-headLen), time.Hour), lease.ErrPending)
			w.at(time.Duration(i+1) * time.Second / 3) // the worker has tried one of them
		}
		for _, want := range []string{"1", "2", "3", ""} { // 0 has made room for 3
			value, err := w.settleBy(new(backend))
			if got := fmt.Sprintf("%.1s", store.ParseValue(value).Content); got != want || err != nil {
				t.Errorf("%q is stored, %v; want %q", got, err, want)
			}
		}
	}, withoutRenewal)
}

// TakeUnstored counts what is pending, and what was given up after Close, once.
func TestTakeUnstored(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		want := func(number string) {
			w.Helper()
			err := w.backlog.TakeUnstored()
			wantIs(t, "TakeUnstored", err, lease.ErrGivenUp)
			if !strings.HasSuffix(err.Error(), ": "+number) {
				w.Errorf("%v, want %s values", err, number)
			}
		}
		w.settlePending(3, 100)
		want("3")
		w.backlog.Close()
		if err := w.group.Close(context.Background()); err != nil {
			t.Error(err)
		}
		w.wantStats(lease.BacklogStats{GivenUp: 3})
		want("3")
		wantIs(t, "TakeUnstored again", w.backlog.TakeUnstored(), nil)
	})
}

// Settle tries to store what is pending under a key, without waiting for the worker.
func TestSettleByAClaim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer answer
		value  string
		err    error
	}{
		"our claim":     {ours, "value", nil},
		"nothing":       {nobody, "value", nil},
		"another claim": {another, "", nil},
		"an error":      {down, "", errDown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"settle": {down, test.answer}}, func(w *world) {
				if value, err := w.backlog.Settle(w.Context(), key); value != nil || err != nil {
					t.Errorf("nothing is pending: %q, %v", value, err)
				}
				wantIs(t, "Settle", w.settle("value"), lease.ErrPending)
				value, err := w.backlog.Settle(w.Context(), key)
				wantIs(t, "Settle by a claim", err, test.err)
				if got := string(store.ParseValue(value).Content); got != test.value {
					t.Errorf("%q is stored, want %q", got, test.value)
				}
				if pending := w.backlog.Stats().Pending > 0; pending != (test.err != nil) {
					t.Errorf("pending: %v", pending)
				}
			})
		})
	}
}

// Settle returns when its context is done. The try goes on.
func TestSettleByAClaimThatGivesUp(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down, slow(300*ms, ours)}}, func(w *world) {
		wantIs(t, "Settle", w.settle("v"), lease.ErrPending)
		ctx, cancel := context.WithTimeoutCause(w.Context(), 100*ms, store.ErrLost)
		defer cancel()
		_, err := w.backlog.Settle(ctx, key)
		wantIs(t, "Settle by a claim", err, store.ErrLost)
		w.at(310 * ms)
		w.wantStats(lease.BacklogStats{Stored: 1})
	})
}

// What is left of a value's time is stored, down to a millisecond, by its own lease or by a later one.
func TestSettleInTheLastMillisecond(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at     time.Duration
		stored bool
	}{
		"a millisecond":                   {9 * ms, true},
		"less":                            {9*ms + time.Microsecond, false},
		"more, which becomes one of them": {8*ms + time.Microsecond, true},
	} {
		for by, store := range map[string]func(w *world) ([]byte, error){
			"own lease":   func(w *world) ([]byte, error) { return w.backlog.Settle(w.Context(), key) },
			"later lease": func(w *world) ([]byte, error) { return w.settleBy(new(backend)) },
		} {
			t.Run(by+", "+name, func(t *testing.T) {
				t.Parallel()
				run(t, map[string][]answer{"settle": {down, ours}}, func(w *world) {
					wantIs(t, "Settle", settle(w.first, "v", 10*ms), lease.ErrPending)
					w.at(test.at)
					value, err := store(w)
					if err != nil || (value != nil) != test.stored {
						t.Errorf("%q, %v; want stored %v", value, err, test.stored)
					}
				})
			})
		}
	}
}

// settleBy stores what is pending by a lease on b.
func (w *world) settleBy(b *backend) ([]byte, error) {
	_, h := w.newLease(b)
	return w.backlog.SettleBy(w.Context(), key, h)
}

// A claim finds the values of its own key, the oldest first. Nothing remains of a key whose values are all stored.
func TestValuesOfManyKeys(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		other := store.Namespace("ns").Key("other").Text
		for i, value := range []string{"first", "second"} {
			w.at(time.Duration(i) * ms)
			_, h := w.newLease(w.backend)
			wantIs(t, "Settle", settle(h, value, time.Hour), lease.ErrPending)
		}
		_, h := w.newLease(w.backend, func(id *lease.ID) { id.Key = store.Namespace("ns").Key("other") })
		wantIs(t, "Settle", settle(h, "of the other", time.Hour), lease.ErrPending)
		w.answerWith("settle", ours)
		for _, want := range []struct{ key, value string }{
			{"ns:{0000}absent", ""}, {key, "first"}, {other, "of the other"}, {other, ""}, {key, "second"}, {key, ""},
		} {
			value, err := w.backlog.Settle(w.Context(), want.key)
			if got := string(store.ParseValue(value).Content); err != nil || got != want.value {
				t.Errorf("%s: stored %q, %v; want %q", want.key, got, err, want.value)
			}
		}
		if n := w.backlog.Keys(); n != 0 {
			t.Errorf("%d keys remain of an empty backlog", n)
		}
	}, withoutRenewal)
}

// SettleBy stores what is pending by a later lease of the same key, and ends both.
func TestSettleByALaterLease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer answer
		err    error
	}{
		"our claim":     {ours, nil},
		"nothing":       {nobody, nil},
		"another claim": {another, store.ErrLost},
		"an error":      {down, lease.ErrPending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"settle": {down}}, func(w *world) {
				wantIs(t, "Settle", w.settle("value"), lease.ErrPending)
				later := &backend{begin: w.backend.begin, answers: map[string][]answer{"settle": {test.answer}}}
				value, err := w.settleBy(later)
				wantIs(t, "SettleBy", err, test.err)
				if len(later.values) == 0 || later.values[0] != "value" || later.ttls[0] > time.Hour {
					t.Errorf("%q was sent, for %v", later.values, later.ttls)
				}
				if test.err != nil {
					w.wantErr(nil)
					return
				}
				if got := string(store.ParseValue(value).Content); got != "value" {
					t.Errorf("%q is stored", got)
				}
				w.wantErr(context.Canceled)
				w.wantStats(lease.BacklogStats{Stored: 1})
			})
		})
	}
}

// Without a pending value SettleBy leaves the lease as it is.
func TestSettleByWithoutAPendingValue(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		value, err := w.backlog.SettleBy(w.Context(), key, w.first)
		if value != nil || err != nil {
			t.Errorf("%q, %v", value, err)
		}
		w.sent("")
		w.wantErr(nil)
	})
}
