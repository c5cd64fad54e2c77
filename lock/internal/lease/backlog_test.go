package lease_test

import (
	"context"
	"errors"
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

// The backlog takes values until they and what they cost are as much as it may hold. One byte more drops the largest, and
// the newest of those.
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
		for givenUp := range 2 {
			_, h := w.newLease(w.backend)
			err := settle(h, strings.Repeat("v", quarter-headLen), time.Hour)
			if wantIs(t, "Settle", err, errDown); errors.Is(err, lease.ErrPending) {
				t.Errorf("%v: it is the newest of the largest", err)
			}
			wantPending(4, 2*givenUp+1)
			w.settlePending(1, headLen)
			wantPending(4+givenUp, 2+givenUp)
		}
	}, withoutRenewal)
}

// settleShort settles a lease in vain, with a value of size bytes, and a short one that is the number of the lease.
func (w *world) settleShort(number, size int) *lease.Handle {
	w.Helper()
	_, h := w.newLease(w.backend, func(id *lease.ID) { id.Key = store.Namespace("ns").Key(fmt.Sprint(number)) })
	whole := func(b []byte) []byte { return append(b, strings.Repeat("v", size-headLen)...) }
	short := func(b []byte) []byte { return append(b, fmt.Sprint(number)...) }
	wantIs(w.T, "Settle", h.Settle(context.Background(), size-headLen, whole, short, time.Hour), lease.ErrPending)
	return h
}

// keyOf is the key of the lease with a number.
func keyOf(number int) string { return store.Namespace("ns").Key(fmt.Sprint(number)).Text }

// stored returns what is pending for the leases with the numbers below n, by their lengths; a short one is "short", and one
// that was given up is "none". It stores them all.
func (w *world) stored(n int) (got []string) {
	w.Helper()
	for i := range n {
		w.forget()
		later := &backend{begin: w.backend.begin}
		_, h := w.newLease(later)
		value, err := w.backlog.StorePendingBy(w.Context(), keyOf(i), h)
		content := string(store.ParseValue(value).Content)
		switch {
		case err != nil:
			w.Errorf("lease %d: %v", i, err)
		case value == nil:
			got = append(got, "none")
		case content == fmt.Sprint(i):
			got = append(got, "short")
		default:
			got = append(got, fmt.Sprint(len(value)))
		}
	}
	return got
}

// The largest values make room for a new one, which may be the largest itself. Their short values take their place, and
// their leases go on.
//
// fault: pending values exceed 64 MiB
func TestShortValuesTakeThePlaceOfTheLargest(t *testing.T) {
	const half, small = lease.MaxBacklog / 2, 1 << 10
	for name, test := range map[string]struct {
		sizes []int
		want  string
	}{
		"all fit":                    {[]int{small, 5000, half}, "1024 5000 33554432"},
		"the new one is the largest": {[]int{5000, half, half + 1}, "5000 33554432 short"},
		"an older one is":            {[]int{5000, half + 1, half}, "5000 short 33554432"},
		"of two the newer one":       {[]int{5000, half, half}, "5000 33554432 short"},
		"larger than all room":       {[]int{5000, lease.MaxBacklog}, "5000 short"},
		"more than one":              {[]int{half / 2, half / 2, half / 2, half / 2, half / 4, half / 4, half / 4}, "16777216 16777216 short short 8388608 8388608 8388608"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, map[string][]answer{"settle": {down}}, func(w *world) {
				var handles []*lease.Handle
				for i, size := range test.sizes {
					handles = append(handles, w.settleShort(i, size))
				}
				replaced := strings.Count(test.want, "short")
				stats := w.backlog.Stats()
				if stats.Pending != len(test.sizes) || stats.GivenUp != uint64(replaced) || stats.Bytes > lease.MaxBacklog {
					w.Errorf("%+v, want all pending and %d given up", stats, replaced)
				}
				w.at(30 * time.Second)
				for i, h := range handles {
					if err := h.Err(); err != nil {
						w.Errorf("lease %d: %v", i, err)
					}
				}
				if got := strings.Join(w.stored(len(test.sizes)), " "); got != test.want {
					w.Errorf("stored %s, want %s", got, test.want)
				}
				w.wantStats(lease.BacklogStats{Stored: uint64(len(test.sizes) - replaced), GivenUp: uint64(replaced)})
			})
		})
	}
}

// Small values, and short ones, make no room. When 4,096 of them are pending, the next is given up.
func TestSmallValuesStayToTheEnd(t *testing.T) {
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		const most = lease.MaxBacklog / lease.PendingCost
		w.settleShort(0, 1<<10)
		w.settleShort(1, 2<<10)
		w.settleShort(2, lease.MaxBacklog/2)
		w.settlePending(most-50, headLen) // 50: for the bytes of the values themselves
		w.wantStats(lease.BacklogStats{Pending: most - 47, GivenUp: 1, Bytes: w.backlog.Stats().Bytes})
		for range 100 {
			_, h := w.newLease(w.backend)
			_ = settle(h, "", time.Hour)
		}
		if stats := w.backlog.Stats(); stats.Pending >= most || stats.Pending+int(stats.GivenUp) != most-47+100+2 {
			w.Errorf("%+v, want fewer than %d pending, and the others given up", stats, most)
		}
		if got := strings.Join(w.stored(3), " "); got != "1024 short short" {
			w.Errorf("stored %s, want the first ones", got)
		}
	}, withoutRenewal)
}

// A lease whose value was given up for a newer one is no longer renewed.
func TestLeaseOfAValueThatMadeRoom(t *testing.T) {
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		const half = lease.MaxBacklog / 2
		wantIs(t, "Settle", w.settle(strings.Repeat("v", half)), lease.ErrPending)
		_, later := w.newLease(w.backend)
		wantIs(t, "Settle", settle(later, strings.Repeat("v", half-lease.PendingCost), time.Hour), lease.ErrPending)
		w.at(30 * time.Second)
		w.wantErr(store.ErrLost)
		wantEnd(t, later, nil)
	})
}

// A later lease that cannot store the value either has its short one, too.
func TestSettleByALaterLeaseWithTheShortValue(t *testing.T) {
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		w.settleShort(0, lease.MaxBacklog/3)
		_, h := w.newLease(w.backend)
		_, err := w.backlog.StorePendingBy(w.Context(), keyOf(0), h)
		wantIs(t, "StorePendingBy", err, lease.ErrPending)
		w.settlePending(1, lease.MaxBacklog/3-1)
		if s := w.backlog.Stats(); s.Pending != 3 || s.GivenUp != 1 {
			w.Errorf("%+v, want all three pending, one of them short", s)
		}
	}, withoutRenewal)
}

// A short value that is no shorter, or whose value is small, takes no place.
func TestShortValueThatIsNotShorter(t *testing.T) {
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		_, h := w.newLease(w.backend)
		whole := func(b []byte) []byte { return append(b, make([]byte, lease.MaxBacklog)...) }
		err := h.Settle(w.Context(), lease.MaxBacklog, whole, whole, time.Hour)
		wantIs(t, "Settle", err, errDown)
		w.wantStats(lease.BacklogStats{GivenUp: 1})
		_, h = w.newLease(w.backend)
		v := func(b []byte) []byte { return append(b, 'v') }
		err = h.Settle(w.Context(), 1, v, func([]byte) []byte { panic("appendShort was called") }, time.Hour)
		wantIs(t, "Settle", err, lease.ErrPending)
	})
}

// The try of a value that is replaced meanwhile goes on. A claim that has waited for it gets the value. A claim that has
// stored the short one gets nothing, and asks the server, which may have the value of an earlier try.
func TestValueIsReplacedDuringItsTry(t *testing.T) {
	for name, test := range map[string]struct {
		last answer // of the value's try
		want int    // the length of what the claim gets
	}{
		"stored":       {slow(300*ms, ours), lease.MaxBacklog / 2},
		"without that": {slow(300*ms, down), 0},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, map[string][]answer{"settle": {down, test.last}}, func(w *world) {
				h := w.settleShort(0, lease.MaxBacklog/2)
				var value []byte
				claim := w.call(func() (err error) { value, err = w.backlog.StorePending(w.Context(), keyOf(0)); return err })
				w.answerWith("settle", down)
				w.settleShort(1, lease.MaxBacklog/2-1) // 0 makes room for it
				w.at(299 * ms)
				w.answerWith("settle", ourValue)
				wantIs(t, "Settle by a claim", claim(), test.last.Err)
				if len(value) != test.want {
					w.Errorf("the claim gets %d bytes, want %d", len(value), test.want)
				}
				value, err := w.backlog.StorePending(w.Context(), keyOf(0))
				if value != nil || err != nil {
					w.Errorf("the next claim gets %d bytes, %v", len(value), err)
				}
				wantEnd(t, h, context.Canceled)
				w.at(time.Minute)
				w.wantStats(lease.BacklogStats{Stored: 1, GivenUp: 1})
			})
		})
	}
}

// Close stores a short value, or counts it as not stored, once.
func TestCloseWithAShortValue(t *testing.T) {
	for name, test := range map[string]struct {
		last answer
		err  error
	}{"stored": {ours, nil}, "not stored": {down, lease.ErrGivenUp}} {
		t.Run(name, func(t *testing.T) {
			run(t, map[string][]answer{"settle": {down}}, func(w *world) {
				w.settleShort(0, lease.MaxBacklog)
				w.answerWith("settle", test.last)
				err := w.close()
				wantIs(t, "Close", err, test.err)
				if err != nil && !strings.HasSuffix(err.Error(), ": 1") {
					w.Errorf("%v, want one value", err)
				}
				w.wantStats(lease.BacklogStats{GivenUp: 1})
			})
		})
	}
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
		t.Run(name, in(map[string][]answer{"settle": {down, test.answer}}, func(w *world) {
			if value, err := w.backlog.StorePending(w.Context(), key); value != nil || err != nil {
				w.Errorf("nothing is pending: %q, %v", value, err)
			}
			wantIs(w.T, "Settle", w.settle("value"), lease.ErrPending)
			value, err := w.backlog.StorePending(w.Context(), key)
			wantIs(w.T, "Settle by a claim", err, test.err)
			if got := string(store.ParseValue(value).Content); got != test.value {
				w.Errorf("%q is stored, want %q", got, test.value)
			}
			if pending := w.backlog.Stats().Pending > 0; pending != (test.err != nil) {
				w.Errorf("pending: %v", pending)
			}
		}))
	}
}

// Settle returns when its context is done. The try goes on.
func TestSettleByAClaimThatGivesUp(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down, slow(300*ms, ours)}}, func(w *world) {
		wantIs(t, "Settle", w.settle("v"), lease.ErrPending)
		ctx, cancel := context.WithTimeoutCause(w.Context(), 100*ms, store.ErrLost)
		defer cancel()
		_, err := w.backlog.StorePending(ctx, key)
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
			"own lease":   func(w *world) ([]byte, error) { return w.backlog.StorePending(w.Context(), key) },
			"later lease": func(w *world) ([]byte, error) { return w.settleBy(new(backend)) },
		} {
			t.Run(by+", "+name, in(map[string][]answer{"settle": {down, ours}}, func(w *world) {
				wantIs(w.T, "Settle", settle(w.first, "v", 10*ms), lease.ErrPending)
				w.at(test.at)
				value, err := store(w)
				if err != nil || (value != nil) != test.stored {
					w.Errorf("%q, %v; want stored %v", value, err, test.stored)
				}
			}))
		}
	}
}

// settleBy stores what is pending by a lease on b.
func (w *world) settleBy(b *backend) ([]byte, error) {
	_, h := w.newLease(b)
	return w.backlog.StorePendingBy(w.Context(), key, h)
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
			value, err := w.backlog.StorePending(w.Context(), want.key)
			if got := string(store.ParseValue(value).Content); err != nil || got != want.value {
				t.Errorf("%s: stored %q, %v; want %q", want.key, got, err, want.value)
			}
		}
		if n := w.backlog.Keys(); n != 0 {
			t.Errorf("%d keys remain of an empty backlog", n)
		}
	}, withoutRenewal)
}

// StorePendingBy stores what is pending by a later lease of the same key, and ends both.
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
		t.Run(name, in(map[string][]answer{"settle": {down}}, func(w *world) {
			wantIs(w.T, "Settle", w.settle("value"), lease.ErrPending)
			later := &backend{begin: w.backend.begin, answers: map[string][]answer{"settle": {test.answer}}}
			value, err := w.settleBy(later)
			wantIs(w.T, "StorePendingBy", err, test.err)
			if len(later.values) == 0 || later.values[0] != "value" || later.ttls[0] > time.Hour {
				w.Errorf("%q was sent, for %v", later.values, later.ttls)
			}
			if test.err != nil {
				w.wantErr(nil)
				return
			}
			if got := string(store.ParseValue(value).Content); got != "value" {
				w.Errorf("%q is stored", got)
			}
			w.wantErr(context.Canceled)
			w.wantStats(lease.BacklogStats{Stored: 1})
		}))
	}
}
