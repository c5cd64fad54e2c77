package lease_test

import (
	"slices"
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

// A value that is pending after all others were stored is stored as well.
func TestLaterValueOfANode(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down, ours, down, ours}}, func(w *world) {
		for i := range 2 {
			w.settlePending(1, 100)
			w.at(time.Duration(i+1) * time.Minute)
			w.wantStats(lease.BacklogStats{Stored: uint64(i + 1)})
		}
	})
}

// All values of a node are tried by one worker, in one batch if they fit, whenever they have come.
func TestOneWorkerForANode(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		w.settlePending(1, 100)
		w.at(30 * time.Second)
		w.settlePending(1, 100)
		w.at(40 * time.Second)
		w.forget()
		w.at(time.Minute)
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		if n := len(w.backend.sent); n == 0 || n%2 != 0 || n > 2*41 { // in 20 s, with pauses of half a second and more
			t.Fatalf("%d tries of two values", n)
		}
		for i := 0; i < len(w.backend.sent); i += 2 {
			if w.backend.sent[i] != w.backend.sent[i+1] {
				t.Errorf("tries of two values: %s and %s, want one batch", w.backend.sent[i], w.backend.sent[i+1])
			}
		}
	}, withoutRenewal)
}

// A batch has at most MaxBatchBytes, but always a value.
func TestBatchBytes(t *testing.T) {
	t.Parallel()
	const half = lease.MaxBatchBytes / 2
	for name, test := range map[string]struct {
		sizes []int
		want  []int // how many values are sent at the same time
	}{
		"small ones":                 {[]int{100, 100, 100}, []int{3}},
		"as much as fits":            {[]int{half, half}, []int{2}},
		"a byte more":                {[]int{half, half + 1}, []int{1, 1}},
		"one that is larger":         {[]int{lease.MaxBatchBytes + 1}, []int{1}},
		"one that is larger, beside": {[]int{100, lease.MaxBatchBytes + 1, 100}, []int{1, 1, 1}},
	} {
		t.Run(name, in(map[string][]answer{"settle": {down}}, func(w *world) {
			for _, size := range test.sizes {
				w.settlePending(1, size)
			}
			var times []time.Time
			w.backend.mu.Lock()
			w.backend.onSend = func(string) {
				w.backend.mu.Lock()
				defer w.backend.mu.Unlock()
				times = append(times, time.Now())
			}
			w.backend.mu.Unlock()
			w.answerWith("settle", slow(100*ms, ours))
			w.at(time.Second)
			var got []int
			for i, at := range times {
				if i == 0 || !at.Equal(times[i-1]) {
					got = append(got, 0)
				}
				got[len(got)-1]++
			}
			if !slices.Equal(got, test.want) {
				w.Errorf("batches of %v, want %v", got, test.want)
			}
		}, withoutRenewal))
	}
}

// Close goes on while values are stored, however long that takes. It stops when none was stored for the time of an
// operation.
func TestCloseGoesOnWhileValuesAreStored(t *testing.T) {
	t.Parallel()
	const n = 100
	for name, test := range map[string]struct {
		answers []answer
		sent    int
		stats   lease.BacklogStats
	}{
		"slowly":          {[]answer{slow(300*ms, ours)}, n, lease.BacklogStats{Stored: n}},
		"without a reply": {[]answer{lost}, 32, lease.BacklogStats{GivenUp: n}},
		"slow errors":     {[]answer{slow(300*ms, down)}, 64, lease.BacklogStats{GivenUp: n}},
		"slow errors once": {
			slices.Concat(slices.Repeat([]answer{slow(300*ms, ours)}, 64), slices.Repeat([]answer{slow(300*ms, down)}, 32), []answer{ours}),
			n, lease.BacklogStats{Stored: n - 32, GivenUp: 32},
		},
	} {
		t.Run(name, in(map[string][]answer{"settle": {down}}, func(w *world) {
			w.settlePending(n, 100)
			w.at(10 * time.Second)
			w.answerWith("settle", test.answers...)
			w.forget()
			_ = w.close()
			if got := w.count("settle"); got != test.sent {
				w.Errorf("%d settles were sent, want %d", got, test.sent)
			}
			w.wantStats(test.stats)
		}, withoutRenewal))
	}
}
