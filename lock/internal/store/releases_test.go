package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// freed is a Redis whose keys are all free. It notes when it was sent a script.
type freed struct {
	net.Conn // nil
	begin    time.Time

	mu  sync.Mutex
	at  []time.Duration // guarded by mu, as out
	out []byte
}

func (f *freed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range strings.Count(string(p), "evalsha") {
		f.at = append(f.at, time.Since(f.begin).Truncate(time.Second))
		f.out = append(f.out, "$-1\r\n"...)
	}
	return len(p), nil
}

func (f *freed) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

func (*freed) Close() error                     { return nil }
func (*freed) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*freed) SetDeadline(time.Time) error      { return nil }
func (*freed) SetReadDeadline(time.Time) error  { return nil }
func (*freed) SetWriteDeadline(time.Time) error { return nil }

// sent returns when scripts were sent since the last time.
func (f *freed) sent() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := fmt.Sprint(f.at)
	f.at = nil
	return at
}

// Each claim is released when it is due, whatever else is in the queue, and also after the queue was empty.
func TestReleasesInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &freed{begin: time.Now()}
		client := redistest.NewDirect(t, &redis.Options{
			Dialer: func(context.Context, string, string) (net.Conn, error) { return f, nil },
		}).Client
		group := background.NewGroup(context.Background())
		config := store.Config{Namespace: "test", TTL: time.Minute, Config: pipeline.Config{OpTimeout: time.Second}}
		s := store.New(client, group, config)
		keep := func(gone, mayReturn bool) {
			s.KeepReleasing(store.Namespace("test").Key("k"), store.NewToken(), time.Hour, gone, mayReturn)
		}
		want := func(sent string, queued int) {
			t.Helper()
			synctest.Wait()
			now, givenUp := s.ReleaseStats()
			if got := f.sent(); got != sent || now != queued || givenUp != 0 {
				t.Errorf("sent at %s, %d in the queue, %d given up; want %s, %d, 0", got, now, givenUp, sent, queued)
			}
		}
		for _, start := range []string{"0s", "1h0m0s"} {
			keep(false, true)
			want("["+start+"]", 1)
			time.Sleep(time.Until(f.begin.Add(time.Hour)))
			if start != "0s" {
				time.Sleep(time.Hour)
				break
			}
			want("[2s 15s 2m0s 10m0s]", 0)
		}
		want("[1h0m2s 1h0m15s 1h2m0s 1h10m0s]", 0)

		keep(true, true) // at 2 h
		time.Sleep(time.Second)
		keep(true, true)
		keep(false, true) // does not wait until the first one is due
		want("[2h0m1s]", 3)
		time.Sleep(time.Hour)
		want("[2h0m2s 2h0m3s 2h0m3s 2h0m15s 2h0m16s 2h0m16s 2h2m0s 2h2m1s 2h2m1s 2h10m0s 2h10m1s 2h10m1s]", 0)

		keep(false, false)
		want("[3h0m1s]", 0)
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// The error of Close says that there are more keys than it names, if there are.
func TestUnreleasedKeys(t *testing.T) {
	t.Parallel()
	for n, more := range map[int]bool{1: false, 100: false, 101: true} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		if err := client.Close(); err != nil { // so that every command fails at once
			t.Fatal(err)
		}
		group := background.NewGroup(context.Background())
		config := store.Config{Namespace: "test", TTL: time.Minute, Config: pipeline.Config{OpTimeout: time.Second}}
		s := store.New(client, group, config)
		for i := range n {
			s.KeepReleasing(store.Namespace("test").Key(fmt.Sprint(i)), store.NewToken(), time.Hour, false, false)
		}
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
		err := s.TakeUnreleased()
		if !errors.Is(err, store.ErrUnreleased) || strings.HasSuffix(err.Error(), "...") != more ||
			!strings.Contains(err.Error(), fmt.Sprintf(": %d: ", n)) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// keepMany queues n claims that are gone and may return.
func (w *world) keepMany(n int) {
	for i := range n {
		w.KeepReleasing(store.Namespace("ns").Key(fmt.Sprint(i)), store.NewToken(), time.Hour, true, true)
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
		w.KeepReleasing(w.key, ours, time.Hour, false, true)
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
		w.KeepReleasing(w.key, ours, time.Hour, false, true)
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
		w.KeepReleasing(w.key, ours, time.Hour, false, false) // of a lease that has outlived the Close
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
