package store_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// Each claim is released when it is due, whatever else is in the queue, and also after the queue was empty.
func TestReleasesInTime(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		keep := func(gone, mayReturn bool) {
			w.KeepReleasing(store.Unneeded{Key: w.key, Token: store.NewToken(), HasHold: true, Gone: gone, MayReturn: mayReturn})
		}
		want := func(sent string, queued int) {
			t.Helper()
			synctest.Wait()
			now, givenUp := w.ReleaseStats()
			w.server.mu.Lock()
			defer w.server.mu.Unlock()
			var at []time.Duration
			for _, when := range w.server.at {
				at = append(at, when.Sub(w.begin).Truncate(time.Second))
			}
			w.server.at = nil
			if got := fmt.Sprint(at); got != sent || now != queued || givenUp != 0 {
				t.Errorf("sent at %s, %d in the queue, %d given up; want %s, %d, 0", got, now, givenUp, sent, queued)
			}
		}
		keep(false, true)
		want("[0s]", 1)
		time.Sleep(time.Hour)
		want("[2s 15s 2m0s 10m0s]", 0)
		keep(true, true)
		time.Sleep(time.Second)
		keep(true, true)
		keep(false, true) // does not wait until the first one is due
		want("[1h0m1s]", 3)
		time.Sleep(time.Hour)
		want("[1h0m2s 1h0m3s 1h0m3s 1h0m15s 1h0m16s 1h0m16s 1h2m0s 1h2m1s 1h2m1s 1h10m0s 1h10m1s 1h10m1s]", 0)
		keep(false, false)
		want("[2h0m1s]", 0)
	})
}

// keepMany queues n claims that are gone and may return.
func (w *world) keepMany(n int) {
	for i := range n {
		key := store.Namespace("ns").Key(fmt.Sprint(i))
		w.KeepReleasing(store.Unneeded{Key: key, Token: store.NewToken(), HasHold: true, Gone: true, MayReturn: true})
	}
}

// wantReleases compares how many releases were sent so far, and how many claims are in the queue and were given up.
func (w *world) wantReleases(sent, queued int, givenUp uint64) {
	w.Helper()
	synctest.Wait()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if q, g := w.ReleaseStats(); len(w.server.sent) != sent || q != queued || g != givenUp {
		w.Errorf("%d sent, %d in the queue, %d given up; want %d, %d, %d", len(w.server.sent), q, g, sent, queued, givenUp)
	}
}

const refusal = "-ERR x\r\n"

// What is due at the same time is sent in batches, one right after the other, and once.
func TestReleasesInBatches(t *testing.T) {
	t.Parallel()
	const n = 300
	run(t, nil, func(w *world) {
		w.keepMany(n)
		time.Sleep(2 * time.Second)
		w.wantReleases(n, n, 0)
	})
	run(t, []string{after(100*time.Millisecond, absent)}, func(w *world) {
		w.keepMany(n)
		time.Sleep(2 * time.Second)
		w.wantReleases(128, n, 0) // the first batch, and no other before its last reply
		time.Sleep(time.Second)
		w.wantReleases(n, n, 0)
	})
}

// A release that fails is retried after growing pauses, which begin anew once one is answered, and for an hour.
func TestReleaseIsRetried(t *testing.T) {
	t.Parallel()
	failures := slices.Repeat([]string{refusal}, 12)
	answers := slices.Concat(failures, []string{absent, refusal, absent})
	run(t, answers, func(w *world) {
		w.KeepReleasing(store.Unneeded{Key: w.key, Token: ours, HasHold: true, MayReturn: true})
		time.Sleep(12 * time.Second)
		w.wantReleases(len(answers), 1, 0)
		at := w.server.at
		if pause := at[12].Sub(at[11]); pause < 500*time.Millisecond || pause > time.Second {
			t.Errorf("a pause of %v after 12 failures", pause)
		}
		if pause := at[14].Sub(at[13]); pause < 10*time.Millisecond || pause > 20*time.Millisecond {
			t.Errorf("a pause of %v after one failure", pause)
		}
	})
	run(t, nil, func(w *world) {
		w.server.rest = refusal
		w.KeepReleasing(store.Unneeded{Key: w.key, Token: ours, HasHold: true, MayReturn: true})
		time.Sleep(time.Hour)
		if queued, givenUp := w.ReleaseStats(); queued != 1 || givenUp != 0 {
			t.Errorf("%d in the queue, %d given up within an hour", queued, givenUp)
		}
		time.Sleep(time.Second)
		if queued, givenUp := w.ReleaseStats(); queued != 0 || givenUp != 1 {
			t.Errorf("%d in the queue, %d given up after an hour", queued, givenUp)
		}
	})
}

// Close has each claim released once more, unless Redis does not answer, and names those that may return.
func TestReleasesAtClose(t *testing.T) {
	t.Parallel()
	const n = 300
	run(t, nil, func(w *world) {
		w.keepMany(n)
		w.close()
		w.wantReleases(n, n, 0)
		w.KeepReleasing(store.Unneeded{Key: w.key, Token: ours, HasHold: true}) // of a lease that has outlived the Close
		w.close()
		w.wantReleases(n+n+1, n, 0)
		wantErr(t, w.TakeUnreleased(), store.ErrUnreleased)
		w.wantReleases(n+n+1, 0, n)
		wantErr(t, w.TakeUnreleased(), nil)
	})
	run(t, nil, func(w *world) {
		w.server.rest = refusal
		w.keepMany(n)
		w.close()
		w.wantReleases(128, n, 0) // of the first batch
	})
}

// The claim of a lock whose Release got no reply is released until it has expired, unless it may return. A Close before that
// names it.
func TestReleasesUntilTheExpiry(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expiry, close time.Duration
		mayReturn     bool
		reply         string // to the releases before the Close, which gets none
		givenUp       uint64
		named         error
	}{
		"expired":                  {ttl, ttl + 2*time.Second, false, refusal, 0, nil},
		"closed before":            {ttl, ttl - time.Second, false, refusal, 1, store.ErrUnreleased},
		"expired, it may return":   {ttl, ttl + 2*time.Second, true, refusal, 0, nil},
		"released, it may return":  {ttl, time.Second, true, ":1\r\n", 0, nil},
		"a lease of a day":         {24 * time.Hour, 2 * time.Hour, false, refusal, 1, nil},
		"a lease of a day, closed": {24 * time.Hour, time.Minute, false, refusal, 1, store.ErrUnreleased},
	} {
		t.Run(name, in(nil, func(w *world) {
			w.server.rest = test.reply
			w.KeepReleasing(store.Unneeded{Key: w.key, Token: ours, MayReturn: test.mayReturn, Expiry: w.begin.Add(test.expiry)})
			time.Sleep(test.close)
			synctest.Wait()
			w.server.rest = refusal
			if queued, _ := w.ReleaseStats(); (queued == 1) != (test.mayReturn || test.named != nil) {
				w.Errorf("%d in the queue", queued)
			}
			w.close()
			wantErr(w.T, w.TakeUnreleased(), test.named)
			if queued, givenUp := w.ReleaseStats(); queued != 0 || givenUp != test.givenUp {
				w.Errorf("%d in the queue, %d given up, want %d", queued, givenUp, test.givenUp)
			}
		}))
	}
}
