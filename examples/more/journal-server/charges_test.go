package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// startCharging runs a service without its background work.
func startCharging(t *testing.T, db, redis string, b *bank, pause func(context.Context, time.Duration) error) *server {
	t.Helper()
	return startWith(t, config{db: db, redis: redis, provider: b.URL, opTimeout: patience}, pause)
}

// eachRedis runs a test with an embedded Redis and with none.
func eachRedis(t *testing.T, test func(t *testing.T, db, redis string)) {
	t.Parallel()
	for name, redis := range map[string]string{"embedded": "", "none": "none"} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, db string) { test(t, db, redis) })
		})
	}
}

// elapse puts the end of the time limit of the one run that has not ended, and its lease, into the past.
func elapse(t *testing.T, s *database) {
	t.Helper()
	hour := map[sqljournal.Dialect]string{
		sqljournal.DialectPostgreSQL: "interval '1 hour'", sqljournal.DialectMySQL: "3600000000", sqljournal.DialectSQLite: "3600000",
	}[s.dialect]
	res, err := s.ExecContext(t.Context(), "update onceguard_journal set until = until - "+hour+" where state = 1")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%d runs have not ended, %v; want 1", n, err)
	}
}

func (s *server) elapse() {
	s.t.Helper()
	elapse(s.t, s.db)
	s.flush()
}

// flush deletes what Redis has, if there is one.
func (s *server) flush() {
	if s.redis.embedded() {
		s.redis.mini.FlushAll()
	}
}

// wantProblem fails the test unless got is one of these problems and allows a retry. It returns the charge's place.
func (c client) wantProblem(got response, names ...string) (place string) {
	c.t.Helper()
	var p middleware.Problem
	err := json.Unmarshal([]byte(got.body), &p)
	name, _ := strings.CutPrefix(p.Type, "urn:onceguard:problem:")
	if err != nil || got.status != http.StatusConflict || !slices.Contains(names, name) ||
		got.header.Get("Retry-After") == "" || got.header.Get("X-Should-Retry") != "true" {
		c.t.Errorf("got %d %s %v, want 409 %s that may be retried", got.status, got.body, got.header, names)
	}
	id, _ := strings.CutPrefix(p.Instance, "urn:onceguard:key:")
	return "/charges/" + id
}

// wantCharge fails the test unless this is the user's one charge.
func (c client) wantCharge(user string, made response) {
	c.t.Helper()
	if got := c.get(user, "/charges"); strings.TrimSpace(got.body) != "["+strings.TrimSpace(made.body)+"]" {
		c.t.Errorf("%s's list: got %d %s, want only %s", user, got.status, got.body, made.body)
	}
	if got := c.get(user, made.header.Get("Location")); got.status != http.StatusOK || got.body != made.body {
		c.t.Errorf("its location: got %d %s, want %s", got.status, got.body, made.body)
	}
}

func TestCharges(t *testing.T) {
	eachRedis(t, func(t *testing.T, db, redis string) {
		b := openBank(t, works)
		s := startCharging(t, db, redis, b, nil)
		if got := s.get("ann", "/charges"); got.body != "[]\n" {
			t.Errorf("no charges: got %d %s", got.status, got.body)
		}
		first := s.pay("ann", "k1", "/charges", euros)
		s.wantPaid(first)
		s.wantReplay(s.pay("ann", "k1", "/charges", euros), first)
		s.wantCharge("ann", first)
		if got := s.get("bob", first.header.Get("Location")); got.status != http.StatusNotFound {
			t.Errorf("another user's charge: got %d %s, want 404", got.status, got.body)
		}
		if got := s.pay("ann", "k1", "/charges", `{"amount":1,"currency":"EUR"}`); got.status != http.StatusUnprocessableEntity {
			t.Errorf("another amount: got %d %s, want 422", got.status, got.body)
		}

		tooMuch := fmt.Sprintf(`{"amount":%d,"currency":"EUR"}`, cardLimit+1)
		declined := s.pay("bob", "k1", "/charges", tooMuch)
		if declined.status != http.StatusPaymentRequired {
			t.Errorf("declined: got %d %s, want 402", declined.status, declined.body)
		}
		s.wantReplay(s.pay("bob", "k1", "/charges", tooMuch), declined)
		if got := s.pay("bob", "k2", "/charges", `{"amount":0}`); got.status != http.StatusUnprocessableEntity {
			t.Errorf("no amount: got %d %s, want 422", got.status, got.body)
		}
		bobs := s.pay("bob", "k2", "/charges", euros) // the key is free
		s.wantPaid(bobs)
		s.wantCharge("bob", bobs)
		b.wantCharges(t, 2)
		if log := s.log.String(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
			t.Errorf("log: %s", log)
		}
	})
}

// fault: the provider does not answer: it has charged, or has not. Nor does it answer the first sweep.
func TestProviderSilent(t *testing.T) {
	for name, f := range map[string]fault{"charged": dropsReply, "not charged": dropsRequest} {
		t.Run(name, func(t *testing.T) {
			eachRedis(t, func(t *testing.T, db, redis string) { testProviderSilent(t, db, redis, f) })
		})
	}
}

func testProviderSilent(t *testing.T, db, redis string, f fault) {
	b := openBank(t, f)
	s := startCharging(t, db, redis, b, nil)
	if got := s.pay("ann", "k1", "/charges", euros); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s, want 503", got.status, got.body)
	}
	s.wantProblem(s.pay("ann", "k1", "/charges", euros), "in-flight")
	s.elapse()
	place := s.wantProblem(s.pay("ann", "k1", "/charges", euros), "outcome-unknown")
	if err := s.sweep(t.Context()); err == nil {
		t.Error("a sweep without an answer: want an error")
	}
	s.flush()
	s.wantProblem(s.pay("ann", "k1", "/charges", euros), "outcome-unknown")
	if got := s.get("ann", place); got.status != http.StatusNotFound {
		t.Errorf("%s: got %d %s, want 404", place, got.status, got.body)
	}

	b.fault.Store(int32(works))
	s.elapse()
	if err := s.sweep(t.Context()); err != nil {
		t.Error(err)
	}
	first := s.pay("ann", "k1", "/charges", euros)
	if first.status != http.StatusCreated || first.replayed != (f == dropsReply) {
		t.Errorf("after the sweep: got %d %s, replayed %v", first.status, first.body, first.replayed)
	}
	if got := first.header.Get("Location"); got != place {
		t.Errorf("Location: got %s, want %s as in the problem", got, place)
	}
	if ct := first.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type: got %s", ct)
	}
	s.wantReplay(s.pay("ann", "k1", "/charges", euros), first)
	s.wantCharge("ann", first)
	b.wantCharges(t, 1)
}

// fault: the sweep has settled the run, whose handler comes late to its transaction.
func TestLateHandler(t *testing.T) {
	eachRedis(t, func(t *testing.T, db, redis string) {
		b := openBank(t, works)
		var s *server
		var swept response
		s = startCharging(t, db, redis, b, func(context.Context, time.Duration) error {
			s.elapse()
			if err := s.sweep(t.Context()); err != nil {
				t.Error(err)
			}
			swept = s.pay("ann", "k1", "/charges", euros)
			return nil
		})
		late := s.pay("ann", "k1", "/charges", euros)
		s.wantReplay(late, swept)
		s.wantCharge("ann", swept)
		b.wantCharges(t, 1)
	})
}
