package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// noJournal is a journal that nobody calls.
type noJournal struct{ journal.Journal }

// A clock that is set back by an hour does not keep Redis from being asked for an hour.
func TestBreakerAndTheClock(t *testing.T) {
	for ahead, want := range map[time.Duration]bool{-time.Second: false, time.Second: true, time.Hour: false} {
		var b breaker
		b.until.Store(time.Now().Add(ahead).UnixNano())
		if got := b.open(); got != want {
			t.Errorf("until %v from now: %v, want %v", ahead, got, want)
		}
	}
}

// The breaker is open for a second after each failure, and closed at its end.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker
		wantOpen := func(want bool) {
			t.Helper()
			if got := b.open(); got != want {
				t.Errorf("open: %v, want %v", got, want)
			}
		}
		wantOpen(false)
		b.tripAfter(t.Context(), lock.ErrPending)
		wantOpen(true)
		time.Sleep(redisPause - time.Nanosecond)
		wantOpen(true)
		b.tripAfter(t.Context(), lock.ErrPending)
		time.Sleep(redisPause - time.Nanosecond)
		wantOpen(true)
		time.Sleep(time.Nanosecond)
		wantOpen(false)
	})
}

// Only an error that leaves open whether Redis works trips the breaker, and none after the caller's deadline.
func TestTripAfter(t *testing.T) {
	t.Parallel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	gone, disconnect := context.WithCancel(t.Context())
	disconnect()
	failed := errors.New("no answer")
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"no error":              {t.Context(), nil, false},
		"no answer":             {t.Context(), failed, true},
		"pending":               {t.Context(), fmt.Errorf("%w; %w", failed, lock.ErrPending), true},
		"of a client that left": {gone, failed, true},
		"of another program":    {t.Context(), lock.ErrForeign, false},
		"a value":               {t.Context(), lock.ErrSettled, false},
		"closed":                {t.Context(), lock.ErrClosed, false},
		"lost":                  {t.Context(), lock.ErrLost, false},
		"after the deadline":    {late, failed, false},
	} {
		var b breaker
		b.tripAfter(test.ctx, test.err)
		if got := b.open(); got != test.want {
			t.Errorf("%s: tripped: %v, want %v", name, got, test.want)
		}
	}
}

// What may run although the claim failed.
func TestMayRun(t *testing.T) {
	t.Parallel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	failed := errors.New("no answer")
	type table map[string]struct {
		policy Policy
		ctx    context.Context
		err    error
		want   bool
	}
	failOpen, journaled := Policy{FailOpen: true}, Policy{Journal: noJournal{}}
	for name, test := range (table{
		"not asked for":      {Policy{}, t.Context(), failed, false},
		"no answer":          {failOpen, t.Context(), failed, true},
		"lost":               {failOpen, t.Context(), lock.ErrLost, false},
		"of another program": {failOpen, t.Context(), lock.ErrForeign, false},
		"after the deadline": {failOpen, late, failed, false},
	}) {
		if got := test.policy.mayFailOpen(test.ctx, test.err); got != test.want {
			t.Errorf("unprotected, %s: %v, want %v", name, got, test.want)
		}
	}
	for name, test := range (table{
		"no journal":         {Policy{}, t.Context(), failed, false},
		"no answer":          {journaled, t.Context(), failed, true},
		"lost":               {journaled, t.Context(), lock.ErrLost, true},
		"closed":             {journaled, t.Context(), lock.ErrClosed, false},
		"at most once":       {Policy{Journal: noJournal{}, AtMostOnce: true}, t.Context(), failed, false},
		"after the deadline": {journaled, late, failed, false},
	}) {
		if got := test.policy.mayRunWithoutLease(test.ctx, test.err); got != test.want {
			t.Errorf("with the journal alone, %s: %v, want %v", name, got, test.want)
		}
	}
}
