package lease_test

import (
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock/internal/lease"
)

// The values of a node that gives no reply do not delay those of another node.
func TestNodesDoNotDelayEachOther(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {lost}}, func(w *world) {
		for range 100 {
			_, h := w.newLease(w.backend)
			go func() { wantIs(t, "Settle", settle(h, "v", time.Hour), lease.ErrPending) }()
		}
		w.at(time.Minute)
		other := &backend{begin: w.backend.begin, answers: map[string][]answer{"settle": {down, ours}}}
		_, h := w.newLease(other)
		wantIs(t, "Settle", settle(h, "v", time.Hour), lease.ErrPending)
		w.at(time.Minute + 20*ms)
		if stats := w.backlog.Stats(); stats.Stored != 1 || stats.Pending != 100 {
			w.Errorf("%+v, want one stored and 100 pending", stats)
		}
	})
}

// Once a node stores a value, all others follow at once. Before that, one batch is tried at a time.
func TestAllFollowTheFirst(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		const n = 100
		for range n {
			_, h := w.newLease(w.backend)
			wantIs(t, "Settle", settle(h, "v", time.Hour), lease.ErrPending)
		}
		w.at(5 * time.Second)
		w.forget()
		w.at(10 * time.Second)
		if tries := w.count("settle"); tries > 11*32 {
			w.Errorf("%d tries in 5 seconds", tries)
		}
		w.answerWith("settle", ours)
		w.at(11 * time.Second)
		if stats := w.backlog.Stats(); stats.Stored != n || stats.Pending != 0 || stats.Bytes != 0 {
			w.Errorf("%+v, want all %d stored", stats, n)
		}
	}, withoutRenewal)
}
