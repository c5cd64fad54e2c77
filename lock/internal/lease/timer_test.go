package lease_test

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
)

// The timer of a lease that is over does not keep its memory until the next tick: each request has a lease.
func TestEndedLeaseIsCollected(t *testing.T) {
	t.Parallel()
	w := &world{T: t, backend: &backend{begin: time.Now()}}
	w.config = lease.Config{TTL: time.Hour, Renew: true, Group: background.NewGroup(t.Context()), Backlog: &w.backlog}
	released := func() weak.Pointer[lease.Core] {
		core, h := w.newLease(w.backend)
		if err := h.Release(context.Background()); err != nil {
			t.Error(err)
		}
		return weak.Make(core)
	}()
	for range 10 {
		if runtime.GC(); released.Value() == nil {
			return
		}
	}
	t.Error("a lease that was released is still in memory")
}
