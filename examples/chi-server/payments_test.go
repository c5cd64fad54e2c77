package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

const euros = `{"amount":1250,"currency":"EUR"}`

func TestPayments(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) { testPayments(t, start(t, "")) })
	t.Run("redis", func(t *testing.T) { testPayments(t, start(t, "redis://"+redistest.Start(t).Addr())) })
}

func testPayments(t *testing.T, s *server) {
	if got := s.get("", "/healthz"); got.status != http.StatusOK {
		t.Errorf("healthz: got %d %s, want 200", got.status, got.body)
	}
	if got := s.get("ann", "/payments"); strings.TrimSpace(got.body) != "[]" {
		t.Errorf("the list at the beginning: got %s, want []", got.body)
	}

	first := s.pay("ann", `"k1"`, "/payments", euros)
	if first.status != http.StatusCreated || first.header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("the first: got %d, %v, want 201 and no replay", first.status, first.header)
	}
	again := s.pay("ann", `"k1"`, "/payments", euros)
	if again.status != http.StatusCreated || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("again: got %d, %v, want a replay of 201", again.status, again.header)
	}
	if again.body != first.body || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("again: got %s at %s, want %s at %s",
			again.body, again.header.Get("Location"), first.body, first.header.Get("Location"))
	}
	if got := s.get("ann", first.header.Get("Location")); got.status != http.StatusOK || got.body != first.body {
		t.Errorf("the payment's location: got %d %s, want %s", got.status, got.body, first.body)
	}

	if got := s.pay("ann", `"k1"`, "/payments", `{"amount":1,"currency":"EUR"}`); got.status != http.StatusUnprocessableEntity {
		t.Errorf("another amount: got %d, want 422", got.status)
	}
	stranger := s.pay("bob", `"k1"`, "/payments", euros)
	if stranger.status != http.StatusCreated || stranger.body == first.body {
		t.Errorf("another user: got %d %s, want a 201 of their own", stranger.status, stranger.body)
	}
	if got := s.get("bob", first.header.Get("Location")); got.status != http.StatusNotFound {
		t.Errorf("another user's payment: got %d, want 404", got.status)
	}
	second := s.pay("ann", `"k2"`, "/payments", `{"amount":7,"currency":"JPY"}`)

	if got, want := s.listed("ann"), []string{id(t, first), id(t, second)}; !slices.Equal(got, want) {
		t.Errorf("ann's list: got %v, want %v", got, want)
	}
	if got, want := s.listed("bob"), []string{id(t, stranger)}; !slices.Equal(got, want) {
		t.Errorf("bob's list: got %v, want %v", got, want)
	}
}

// id returns the id of the payment in the response.
func id(t *testing.T, r response) string {
	t.Helper()
	var p payment
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || p.ID == "" {
		t.Fatalf("no payment: %d %s", r.status, r.body)
	}
	return p.ID
}

func TestPaymentsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	tests := []struct {
		name, path, body string
		want             int
	}{
		{"empty", "/payments", ``, 400},
		{"no JSON", "/payments", `amount=1`, 400},
		{"cut off", "/payments", `{"amount":1250,`, 400},
		{"unknown field", "/payments", `{"amount":1250,"currency":"EUR","to":"eve"}`, 400},
		{"trailing data", "/payments", euros + `{}`, 400},
		{"trailing garbage", "/payments", euros + `x`, 400},
		{"malformed delay", "/payments?delay=soon", euros, 400},
		{"negative delay", "/payments?delay=-1s", euros, 400},
		{"long delay", "/payments?delay=11s", euros, 400},
		{"nothing", "/payments", `null`, 422},
		{"list", "/payments", `[]`, 422},
		{"no amount", "/payments", `{"currency":"EUR"}`, 422},
		{"zero", "/payments", `{"amount":0,"currency":"EUR"}`, 422},
		{"negative", "/payments", `{"amount":-1,"currency":"EUR"}`, 422},
		{"too much", "/payments", `{"amount":1000000001,"currency":"EUR"}`, 422},
		{"fraction", "/payments", `{"amount":12.5,"currency":"EUR"}`, 422},
		{"text", "/payments", `{"amount":"1250","currency":"EUR"}`, 422},
		{"no currency", "/payments", `{"amount":1250}`, 422},
		{"small letters", "/payments", `{"amount":1250,"currency":"eur"}`, 422},
		{"too long a currency", "/payments", `{"amount":1250,"currency":"EURO"}`, 422},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := s.pay("ann", fmt.Sprint("k", i), tt.path, tt.body)
			var problem middleware.Problem
			err := json.Unmarshal([]byte(got.body), &problem)
			if err != nil || got.status != tt.want || problem.Status != tt.want || problem.Detail == "" {
				t.Errorf("got %d %s, want a problem with %d", got.status, got.body, tt.want)
			}
			if ct := got.header.Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("Content-Type: got %q, want application/problem+json", ct)
			}
		})
	}
	if ids := s.listed("ann"); len(ids) != 0 {
		t.Errorf("paid nevertheless: %v", ids)
	}
}

func TestPaymentsNeedAKey(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	if got := s.pay("ann", "", "/payments", euros); got.status != http.StatusBadRequest || !strings.Contains(got.body, "key-missing") {
		t.Errorf("got %d %s, want 400 key-missing", got.status, got.body)
	}
	if line := s.log.next(t, "protected request"); line["level"] != "WARN" || line["outcome"] != "missing-key" {
		t.Errorf("log: got %v, want a warning, missing-key", line)
	}
}

func TestPaymentsNeedAUser(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	for _, user := range []string{"", "a\x01b"} {
		got := s.pay(user, "k1", "/payments", euros)
		if got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("POST by %q: got %d, WWW-Authenticate %q; want 401, Basic", user, got.status, got.header.Get("WWW-Authenticate"))
		}
	}
	if got := s.get("", "/payments"); got.status != http.StatusUnauthorized {
		t.Errorf("GET without a user: got %d, want 401", got.status)
	}
}

// The log has one line for a protected request, and that line has no secrets of the client.
func TestLog(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	r := s.request("POST", "/payments", `{"amount":424242,"currency":"EUR"}`)
	r.SetBasicAuth("ann-of-green-gables", "hunter2")
	r.Header.Set("Idempotency-Key", `"very-secret-key"`)
	r.Header.Set("X-Request-Id", "request-7")
	s.do(r)
	s.get("ann-of-green-gables", "/payments")
	s.stop()
	if err := s.awaitEnd(); err != nil {
		t.Fatal(err)
	}
	close(s.log)
	var about []string
	for line := range s.log {
		for _, secret := range []string{"ann-of", "hunter2", "very-secret", "424242"} {
			if strings.Contains(line, secret) {
				t.Errorf("%s in the log: %s", secret, line)
			}
		}
		if strings.Contains(line, "protected request") {
			about = append(about, line)
		}
	}
	want := regexp.MustCompile(`"level":"INFO","msg":"protected request","outcome":"executed","status":201,` +
		`"key":"chi-server:\{[0-9a-f]{4}\}[0-9a-f]{64}","claim":[1-9]\d*,"handler":[1-9]\d*,"settle":[1-9]\d*,"request":"request-7"\}`)
	if len(about) != 1 || !want.MatchString(about[0]) {
		t.Errorf("got %q, want one line like %s", about, want)
	}
}

// If the time is over before the payment is made, nothing is paid, and the key is free for a retry, even with
// WithAtMostOnce.
func TestPaymentTimesOut(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t).Client(t)
	locker := lock.New(client, "test", lock.WithOpTimeout(patience))
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	api := &paymentsAPI{}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()),
		middleware.WithAtMostOnce(), middleware.WithMaxDuration(10*time.Millisecond))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments?delay=10s", strings.NewReader(`{"amount":1,"currency":"EUR"}`))
		r.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		once(http.HandlerFunc(api.create)).ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Idempotent-Replayed") != "" {
			t.Errorf("got %d, replayed %q; want 503 from the handler", w.Code, w.Header().Get("Idempotent-Replayed"))
		}
	}
	if made := api.made.of(""); len(made) > 0 {
		t.Errorf("paid: %v", made)
	}
}
