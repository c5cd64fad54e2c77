package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// settleInVain settles while the server cannot store anything, or is silent.
func settleInVain(t *testing.T, lease *lock.Lease, value []byte, keep time.Duration) {
	t.Helper()
	if err := lease.Settle(t.Context(), value, keep); !errors.Is(err, lock.ErrPending) {
		t.Fatalf("Settle: %v, want ErrPending", err)
	}
}

// wantStats checks the counts of settlements.
func wantStats(t *testing.T, locker *lock.Locker, want lock.Stats) {
	t.Helper()
	s := locker.Stats()
	if got := (lock.Stats{
		Pending: s.Pending, PendingBytes: s.PendingBytes, SettledLate: s.SettledLate, SettlesGivenUp: s.SettlesGivenUp,
	}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
