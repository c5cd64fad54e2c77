package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

func TestPayments(t *testing.T) {
	each(t, func(t *testing.T, db string) { testPayments(t, config{db: db, opTimeout: patience}) })
}

func TestPaymentsWithRedis(t *testing.T) {
	each(t, func(t *testing.T, db string) {
		testPayments(t, config{db: db, redis: "redis://" + redistest.Start(t).Addr(), opTimeout: patience})
	})
}

func TestPaymentsWithoutRedis(t *testing.T) {
	each(t, func(t *testing.T, db string) { testPayments(t, config{db: db, redis: "none"}) })
}

func testPayments(t *testing.T, cfg config) {
	s := startWith(t, cfg, nil)
	s.wantListed("ann")

	first := s.pay("ann", "k1", "/payments", euros)
	s.wantPaid(first)
	again := s.pay("ann", "k1", "/payments", euros)
	s.wantReplay(again, first)
	place := first.header.Get("Location")
	if got := again.header.Get("Location"); place == "" || got != place {
		t.Errorf("Location: got %q, then %q; want the same", place, got)
	}
	if got := s.get("ann", place); got.status != http.StatusOK || got.body != first.body {
		t.Errorf("the payment's location: got %d %s, want %s", got.status, got.body, first.body)
	}
	if got := s.pay("ann", "k1", "/payments", `{"amount":1,"currency":"EUR"}`); got.status != http.StatusUnprocessableEntity {
		t.Errorf("another amount: got %d %s, want 422", got.status, got.body)
	}

	bobs := s.pay("bob", "k1", "/payments", euros)
	s.wantPaid(bobs)
	if got := s.get("bob", place); got.status != http.StatusNotFound {
		t.Errorf("another user's payment: got %d %s, want 404", got.status, got.body)
	}
	second := s.pay("ann", "k2", "/payments", `{"amount":7,"currency":"JPY"}`)
	s.wantPaid(second)
	s.wantListed("ann", first, second)
	s.wantListed("bob", bobs)
	if log := s.log.String(); strings.Contains(log, "level=WARN") || strings.Contains(log, "ann") {
		t.Errorf("log: got %s, want no warning, and not the user", log)
	}
}

// A double click: the second request comes while the first one runs.
func TestDoubleClick(t *testing.T) {
	each(t, func(t *testing.T, db string) {
		var s *server
		runs := 0
		s = start(t, db, func(_ context.Context, delay time.Duration) error {
			runs++
			if delay != 2*time.Second {
				t.Errorf("delay: got %v, want 2s", delay)
			}
			if got := s.pay("ann", "k1", "/payments?delay=2s", euros); got.status != http.StatusConflict {
				t.Errorf("the second click: got %d %s, want 409", got.status, got.body)
			}
			return nil
		})
		first := s.pay("ann", "k1", "/payments?delay=2s", euros)
		s.wantPaid(first)
		s.wantReplay(s.pay("ann", "k1", "/payments?delay=2s", euros), first)
		if runs != 1 {
			t.Errorf("%d runs, want 1", runs)
		}
		s.wantListed("ann", first)
	})
}

// fault: FLUSHALL while a payment runs, and after it. Nothing is paid twice.
func TestFlushAll(t *testing.T) {
	each(t, func(t *testing.T, db string) {
		var s *server
		s = start(t, db, func(context.Context, time.Duration) error {
			s.redis.mini.FlushAll()
			return nil
		})
		first := s.pay("ann", "k1", "/payments", euros)
		s.wantPaid(first)
		s.wantReplay(s.pay("ann", "k1", "/payments", euros), first)
		s.redis.mini.FlushAll()
		s.wantReplay(s.pay("ann", "k1", "/payments", euros), first)
		s.wantListed("ann", first)
	})
}

// fault: the COMMIT fails. Nothing was paid, and a retry pays once.
func TestCommitFails(t *testing.T) {
	eachRedis(t, func(t *testing.T, db, redis string) {
		if strings.HasPrefix(db, "mysql:") {
			t.Skip("it has no constraint that is checked by COMMIT")
		}
		source, err := connect(db)
		if err != nil {
			t.Fatal(err)
		}
		// The foreign key is checked by the COMMIT.
		exec(t, source.DB, "create table customers (name text primary key)")
		exec(t, source.DB, strings.Replace(paymentsTable, "customer text not null",
			"customer text not null references customers deferrable initially deferred", 1))
		if err := source.close(); err != nil {
			t.Fatal(err)
		}

		s := startWith(t, config{db: db, redis: redis, opTimeout: patience}, nil)
		for range 2 {
			got := s.pay("ann", "k1", "/payments", euros)
			if got.status != http.StatusInternalServerError || got.replayed || got.header.Get("Location") != "" {
				t.Errorf("got %d %s, replayed %v, Location %q; want 500", got.status, got.body, got.replayed, got.header.Get("Location"))
			}
			s.wantListed("ann")
		}
		if log := s.log.String(); strings.Count(log, "payment failed") != 2 {
			t.Errorf("log: got %s, want two lines about the payments that failed", log)
		}
		exec(t, s.db.DB, "insert into customers values ('ann')")
		first := s.pay("ann", "k1", "/payments", euros)
		s.wantPaid(first)
		s.wantReplay(s.pay("ann", "k1", "/payments", euros), first)
		s.wantListed("ann", first)
	})
}

func TestPaymentsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	tests := []struct {
		name, path, body string
		want             int
	}{
		{"empty", "/payments", ``, 400},
		{"no JSON", "/payments", `amount=1`, 400},
		{"cut off", "/payments", `{"amount":1250,`, 400},
		{"unknown field", "/payments", `{"amount":1250,"currency":"EUR","to":"eve"}`, 400},
		{"trailing data", "/payments", euros + `{}`, 400},
		{"trailing bracket", "/payments", euros + `]`, 400},
		{"malformed delay", "/payments?delay=soon", euros, 400},
		{"negative delay", "/payments?delay=-1s", euros, 400},
		{"long delay", "/payments?delay=11s", euros, 400},
		{"nothing", "/payments", `null`, 422},
		{"list", "/payments", `[]`, 422},
		{"zero", "/payments", `{"amount":0,"currency":"EUR"}`, 422},
		{"too much", "/payments", `{"amount":1000000001,"currency":"EUR"}`, 422},
		{"fraction", "/payments", `{"amount":12.5,"currency":"EUR"}`, 422},
		{"no currency", "/payments", `{"amount":1250}`, 422},
		{"small letters", "/payments", `{"amount":1250,"currency":"eur"}`, 422},
	}
	var paid []response
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := fmt.Sprint("k", i)
			got := s.pay("bob", key, tt.path, tt.body)
			var problem middleware.Problem
			err := json.Unmarshal([]byte(got.body), &problem)
			if err != nil || got.status != tt.want || problem.Status != tt.want || problem.Detail == "" {
				t.Errorf("got %d %s, want a problem with %d", got.status, got.body, tt.want)
			}
			if ct := got.header.Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("Content-Type: got %q, want application/problem+json", ct)
			}
			// The key is free for the corrected request.
			corrected := s.pay("bob", key, "/payments", euros)
			s.wantPaid(corrected)
			paid = append(paid, corrected)
		})
	}
	s.wantListed("bob", paid...)
}
