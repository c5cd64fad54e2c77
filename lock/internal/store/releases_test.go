package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock/internal/background"
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
		keep := func(released bool) { s.KeepReleasing(store.Namespace("test").Key("k"), store.NewToken(), released) }
		want := func(sent string, queued int) {
			t.Helper()
			synctest.Wait()
			now, givenUp := s.ReleaseStats()
			if got := f.sent(); got != sent || now != queued || givenUp != 0 {
				t.Errorf("sent at %s, %d in the queue, %d given up; want %s, %d, 0", got, now, givenUp, sent, queued)
			}
		}
		for _, start := range []string{"0s", "1h0m0s"} {
			keep(false)
			want("["+start+"]", 1)
			time.Sleep(time.Until(f.begin.Add(time.Hour)))
			if start != "0s" {
				time.Sleep(time.Hour)
				break
			}
			want("[2s 15s 2m0s 10m0s]", 0)
		}
		want("[1h0m2s 1h0m15s 1h2m0s 1h10m0s]", 0)

		keep(true) // at 2 h: released before
		time.Sleep(time.Second)
		keep(true)
		time.Sleep(time.Hour)
		want("[2h0m2s 2h0m3s 2h0m15s 2h0m16s 2h2m0s 2h2m1s 2h10m0s 2h10m1s]", 0)
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
			s.KeepReleasing(store.Namespace("test").Key(fmt.Sprint(i)), store.NewToken(), false)
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
