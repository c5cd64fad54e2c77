package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := newLocker(t, server.Client(t), lock.WithOpTimeout(100*time.Millisecond))
	closed, open := serveOn(t, locker, payOnce()), serveOn(t, locker, payOnce(), middleware.WithFailOpen())
	server.Pause(t)

	a := closed.send()
	e := closed.want(a, http.StatusServiceUnavailable, middleware.StoreUnavailable)
	if a.problem() != "store-unavailable" || a.header.Get("Retry-After") != "1" || !errors.Is(e.Err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", a, e.Err)
	}
	closed.wantRuns(0)

	e = open.want(open.send(), http.StatusCreated, middleware.Unprotected)
	if !errors.Is(e.Err, context.DeadlineExceeded) {
		t.Errorf("WithFailOpen: error %v, want DeadlineExceeded", e.Err)
	}
	open.wantRuns(1)
}

// settles matches the script that stores a response.
func settles(c redistest.Command) bool {
	return strings.HasPrefix(c.Name, "EVAL") && bytes.Contains(bytes.Join(c.Args, nil), []byte("OGv\x01"))
}

// A full Redis refuses every write. What it holds is replayed, and no other request runs.
//
// fault: maxmemory reached, noeviction
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := newLocker(t, server.Client(t))
	s, open := serveOn(t, locker, payOnce()), serveOn(t, locker, payOnce(), middleware.WithFailOpen())
	g := newGate()
	slow := serveOn(t, locker, func(http.ResponseWriter, *http.Request) { g.pass() })
	s.want(s.send(), http.StatusCreated, middleware.Executed)
	done := slow.inBackground(g, key("slow"))

	config := server.Client(t)
	if err := config.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*site{s, open} {
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.want(s.send(key("slow")), http.StatusConflict, middleware.InFlight)
	}
	e := s.want(s.send(key("k2")), http.StatusServiceUnavailable, middleware.StoreUnavailable)
	if !redis.HasErrorPrefix(e.Err, "OOM") {
		t.Errorf("error %v, want the server's OOM", e.Err)
	}
	s.wantRuns(1)
	open.wantRuns(0)
	close(g.open)
	<-done
	if e := slow.event(); e.Outcome != middleware.NotStored || !redis.HasErrorPrefix(e.Err, "OOM") {
		t.Errorf("%+v, want not-stored and the server's OOM", e)
	}
	if err := config.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
}

// A record that cannot be read is never a run, and never a wrong replay.
func TestUnreadableRecord(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		ctx, client := t.Context(), b.Client(t)
		s := serve(t, b, payOnce(), middleware.WithFailOpen())
		e := s.want(s.send(), http.StatusCreated, middleware.Executed)
		other := s.want(s.send(key("other")), http.StatusCreated, middleware.Executed)
		good, _ := b.Raw(t, e.Key)
		foreign, _ := b.Raw(t, other.Key)

		unreadable := func(what string) {
			t.Helper()
			a := s.send()
			e := s.event()
			if a.status != http.StatusInternalServerError || a.problem() != "record-unreadable" ||
				e.Outcome != middleware.Unreadable || e.Err == nil {
				t.Errorf("%s: %d %s, %+v", what, a.status, a.body, e)
			}
		}
		put := func(value string) {
			t.Helper()
			if err := client.Set(ctx, e.Key, value, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range good {
			if i >= 4 && i < 28 {
				continue // the token: whose lease it was is of no meaning here
			}
			damaged := []byte(good)
			damaged[i] ^= 1 << (i % 8)
			put(string(damaged))
			unreadable("damaged at byte " + string(rune('0'+i%10)))
		}
		for _, n := range []int{0, 1, 20, 28, 29, 60, len(good) - 1} {
			put(good[:n])
			unreadable("cut short")
		}
		put(good + "x")
		unreadable("with a byte too many")
		put(foreign)
		unreadable("another key's record")
		if err := client.Del(ctx, e.Key).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.HSet(ctx, e.Key, "a", "b").Err(); err != nil {
			t.Fatal(err)
		}
		unreadable("a hash")
		s.wantRuns(2)

		if err := client.Del(ctx, e.Key).Err(); err != nil {
			t.Fatal(err)
		}
		put(good)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
	})
}

func TestUnreadableNote(t *testing.T) {
	t.Parallel()
	for _, note := range [][]byte{
		nil, {1}, {3}, bytes.Repeat([]byte{2}, 42), bytes.Repeat([]byte{1}, 42), bytes.Repeat([]byte{1}, 41),
	} {
		locker := newLocker(t, redistest.Mini(t).Client(t))
		s := serveKeyed(t, locker, func(*http.Request) (string, error) { return "k", nil }, payOnce())
		if _, err := locker.Claim(t.Context(), "k", note, 0); err != nil {
			t.Fatal(err)
		}
		s.want(s.send(), http.StatusInternalServerError, middleware.Unreadable)
		s.wantRuns(0)
	}
}

// The round trips of each kind of request.
func TestRoundTrips(t *testing.T) {
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	both(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		g := newGate()
		s := serveOn(t, newLocker(t, p.Client(t)), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("slow") {
				g.pass()
			}
			w.WriteHeader(map[bool]int{true: http.StatusBadGateway, false: http.StatusCreated}[r.URL.Query().Has("fails")])
		})
		count := func(what string, want int, edits ...edit) {
			t.Helper()
			p.Reset()
			s.send(edits...)
			if got := p.RoundTrips(); got != want {
				t.Errorf("%s: %d round trips (%q), want %d", what, got, p.Commands(), want)
			}
		}
		s.send(key("warm")) // the server learns the scripts
		s.send(key("warm2"), target("/payments?fails"))
		slow := target("/payments?slow")
		done := s.inBackground(g, key("slow"), slow)
		count("a first request", 2)
		count("one that frees the key", 2, key("k2"), target("/payments?fails"))
		count("a replay", 1)
		count("a mismatch", 1, body("text/plain", "other"))
		count("a duplicate in flight", 1, key("slow"), slow)
		count("a mismatch in flight", 1, key("slow"), slow, body("text/plain", "other"))
		count("no key", 0, noKey)
		count("an invalid key", 0, key(`"`))
		close(g.open)
		<-done
	})
}
