package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// The lease counts from before the renewal was sent, and so does the next renewal.
func TestRenewalCountsFromItsStart(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"renew": {slow(400*ms, ours)}}, func(w *world) {
		w.at(6*time.Second + 300*ms)
		w.sent("renew 3s, renew 6s")
		w.wantUntil(3*time.Second + valid)
		w.at(6*time.Second + 400*ms)
		w.wantUntil(6*time.Second + valid)
	})
}

// A lease that cannot be renewed is lost at Until, and not earlier or later, whatever its renewals meet.
func TestRenewalFails(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]answer{
		"refused at once":                        down,
		"no reply within the operation":          lost,
		"a reply that comes too late":            slow(time.Hour, ours),
		"a reply behind the end of the lease":    slow(valid-3*time.Second+1, ours),
		"a refusal just before the lease's end":  slow(valid-3*time.Second-1, down),
		"a refusal at the very end of the lease": slow(valid-3*time.Second, down),
	} {
		t.Run(name, in(map[string][]answer{"renew": {a}}, func(w *world) {
			w.at(valid - 1)
			w.wantErr(nil)
			w.wantUntil(valid)
			w.at(valid)
			w.wantErr(store.ErrLost)
			w.wantPhase("lost")
			sent := w.count("renew")
			w.at(time.Minute)
			if now := w.count("renew"); now != sent || sent == 0 {
				w.Errorf("%d renewals were sent, %d of them after the end", now, now-sent)
			}
			wantIs(w.T, "Extend", w.first.Extend(w.Context(), time.Minute), store.ErrLost)
			if n := w.count("extend 1m0s"); n != 0 {
				w.Errorf("%d commands were sent after the end", n)
			}
		}))
	}
}

// Between a renewal that has failed and the next one is a pause of up to a tenth of the lease's length.
func TestRenewalIsTriedAgain(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"renew": {down, down, down, ours}}, func(w *world) {
		w.at(3*time.Second + 3*ttl/10)
		if got := w.count("renew"); got != 4 {
			w.Errorf("%d renewals were sent, want 4", got)
		}
		w.wantErr(nil)
		if until := w.core.Until(); !until.After(w.backend.begin.Add(3*time.Second + valid)) {
			w.Errorf("valid until %v", until)
		}
	})
}

// A renewal and an Extend may be in flight at the same time. The longer one counts, whichever is answered first.
func TestRenewalDuringExtend(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		extend answer
		until  time.Duration
		err    error
	}{
		"answered later":   {slow(400*ms, ours), 2900*ms + lease.Validity(20*time.Second), nil},
		"answered earlier": {slow(50*ms, ours), 2900*ms + lease.Validity(20*time.Second), nil},
		"no reply":         {lost, 3*time.Second + valid, context.DeadlineExceeded},
	} {
		t.Run(name, in(map[string][]answer{"extend 20s": {test.extend}, "renew": {slow(200*ms, ours)}}, func(w *world) {
			w.at(2900 * ms)
			wantIs(w.T, "Extend", w.first.Extend(w.Context(), 20*time.Second), test.err)
			w.at(3500 * ms)
			w.sent("extend 20s 2.9s, renew 3s")
			w.wantUntil(test.until)
		}))
	}
}

// What an Extend or a renewal finds ends the lease, or leaves it as it is.
func TestExtend(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer answer
		err    error // of Extend
		end    error // of the lease
		until  time.Duration
	}{
		"our claim":     {ours, nil, nil, time.Second + lease.Validity(20*time.Second)},
		"nothing":       {nobody, store.ErrLost, store.ErrLost, valid},
		"another claim": {another, store.ErrLost, store.ErrLost, valid},
		"our own value": {ourValue, nil, nil, valid},
		"an error":      {down, errDown, nil, valid},
		"no reply":      {lost, context.DeadlineExceeded, nil, valid},
		"no holder":     {answer{Found: store.Found{Holder: store.Another + 1}}, store.ErrLost, store.ErrLost, valid},
	} {
		t.Run(name, in(map[string][]answer{"extend 20s": {test.answer}}, func(w *world) {
			w.at(time.Second)
			wantIs(w.T, "Extend", w.first.Extend(w.Context(), 20*time.Second), test.err)
			w.wantErr(test.end)
			w.wantUntil(test.until)
			w.sent("extend 20s 1s")
		}))
	}
}

// Without renewals a lease that was extended is lost at its new end.
func TestExtendWithoutRenewal(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		w.at(time.Second)
		wantIs(t, "Extend", w.first.Extend(w.Context(), 20*time.Second), nil)
		end := time.Second + lease.Validity(20*time.Second)
		w.at(end - 1)
		w.wantErr(nil)
		w.at(end)
		w.wantErr(store.ErrLost)
	}, withoutRenewal)
}

// A lease that runs out while its Extend is in flight stays lost, whatever that finds.
func TestExtendAcrossTheEnd(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"extend 20s": {slow(400*ms, ours)}}, func(w *world) {
		w.at(valid - 200*ms)
		extended := w.call(func() error { return w.first.Extend(w.Context(), 20*time.Second) })
		w.at(valid)
		w.wantErr(store.ErrLost)
		wantIs(t, "Extend", extended(), store.ErrLost)
		w.wantErr(store.ErrLost)
		w.wantUntil(valid)
	}, withoutRenewal)
}

func TestCloseWaitsForARenewal(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"renew": {slow(400*ms, ours)}}, func(w *world) {
		w.at(3100 * ms)
		if err := w.close(); err != nil {
			w.Error(err)
		}
		if got := time.Since(w.backend.begin); got != 3400*ms {
			w.Errorf("Close has returned at %v, want 3.4s, when the renewal ends", got)
		}
	})
}

// No renewal is sent once the group is closed: the lease runs out.
func TestClosedGroupDoesNotRenew(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		w.at(time.Second)
		if err := w.close(); err != nil {
			w.Error(err)
		}
		w.at(valid - 1)
		w.wantErr(nil)
		w.at(valid)
		w.wantErr(store.ErrLost)
		w.sent("")
		wantIs(t, "Release", w.release(), nil)
	})
}

// A renewal that the backend confirms is counted, and a lease while it is valid.
func TestCounts(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"renew": {ours, down, ours}}, func(w *world) {
		_, other := w.newLease(w.backend, withHold)
		w.wantCounts(2, 0, 0)
		wantIs(t, "Release", other.Release(w.Context()), nil)
		w.wantCounts(1, 0, 0)
		w.at(valid - 1)
		w.wantCounts(1, uint64(w.count("renew")-1), 0)
		w.answerWith("renew", another)
		w.at(time.Minute)
		w.wantCounts(0, w.config.Counts.Renewals.Load(), 1)
	})
}

// A tick that has begun before a Release, and runs after it, changes nothing.
func TestTickAfterRelease(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"release": {slow(time.Minute, ours)}}, func(w *world) {
		released := w.call(w.release)
		w.at(valid + time.Second)
		w.core.Tick()
		w.wantPhase("releasing")
		w.wantErr(context.Canceled)
		wantIs(t, "Release", released(), nil)
		w.core.Tick()
		w.wantPhase("ended")
		w.wantCounts(0, 0, 0)
	}, withoutRenewal)
}
