package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// conformance: 15, 16
func TestReplay(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce())
		first := s.send()
		e := s.want(first, http.StatusCreated, middleware.Executed)
		if e.Status != http.StatusCreated || e.Err != nil || e.Claim.Duration <= 0 || e.Handler.Duration <= 0 {
			t.Errorf("event %+v, want the status, no error and its phases", e)
		}
		if _, said := first.header["Idempotent-Replayed"]; said {
			t.Error("the first response says Idempotent-Replayed")
		}
		for range 2 {
			again := s.send()
			e := s.want(again, http.StatusCreated, middleware.Replayed)
			if again.body != first.body || !again.replayed() {
				t.Errorf("replay %+v, want %+v", again, first)
			}
			if keys := b.Keys(t); !slices.Equal(keys, []string{e.Key}) {
				t.Errorf("keys %q, want the event's %q alone", keys, e.Key)
			}
		}
		s.wantRuns(1)
	})
}

// conformance: 21
func TestRetention(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce(), middleware.WithRetention(time.Hour))
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		b.Elapse(t, 30*time.Minute)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		b.Elapse(t, 30*time.Minute)
		s.want(s.send(), http.StatusCreated, middleware.Executed)
	})
}

// conformance: 22
func TestClientGone(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		entered, gone, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-finish
			if err := r.Context().Err(); err != nil {
				t.Errorf("the client's leaving ended the run: %v", err)
			}
			payOnce()(w, r)
		})
		s.outer = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				context.AfterFunc(r.Context(), func() { gone <- struct{}{} })
				next.ServeHTTP(w, r)
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		r := s.request().WithContext(ctx)
		go func() {
			_, err := s.try(r)
			failed <- err
		}()
		<-entered
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("the client got %v, want its own cancellation", err)
		}
		<-gone // net/http has noticed
		close(finish)
		if e := s.event(); e.Outcome != middleware.Executed || e.Err != nil {
			t.Errorf("%+v, want executed", e)
		}
		go func() { <-gone }() // the retry's context ends as well
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.wantRuns(1)
	})
}

// conformance: 23
func TestPanic(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for _, value := range []any{"a text", errors.New("an error"), http.ErrAbortHandler} {
			b.FlushAll(t)
			s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Half", "done")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "half")
				panic(value)
			})
			s.outer = func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						if got := recover(); got != nil {
							if got != value {
								t.Errorf("panic value %v, want %v", got, value)
							}
							http.Error(w, "recovered", http.StatusInternalServerError)
						}
					}()
					next.ServeHTTP(w, r)
				})
			}
			a := s.send()
			s.want(a, http.StatusInternalServerError, middleware.Panicked)
			if a.body != "recovered\n" || a.header.Get("X-Half") != "" {
				t.Errorf("something of the half response is left: %+v", a)
			}
			s.want(s.send(), http.StatusConflict, middleware.InFlight)
			s.wantRuns(1)
			b.Elapse(t, 10*time.Second) // the lease runs out
			s.want(s.send(), http.StatusInternalServerError, middleware.Panicked)
			s.wantRuns(2)
		}
	})
}

// conformance: 41
func TestOuterHeadersAreTodays(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Vary", "Accept")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Del("X-Powered-By")
		w.Header().Set("Access-Control-Allow-Origin", w.Header().Get("Access-Control-Allow-Origin"))
	})
	today := "monday"
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", today)
			w.Header().Set("Access-Control-Allow-Origin", "https://"+today+".example")
			w.Header().Set("Vary", "Origin")
			w.Header().Set("Cache-Control", "public")
			w.Header().Set("X-Powered-By", today)
			next.ServeHTTP(w, r)
		})
	}
	for _, today = range []string{"monday", "tuesday"} {
		a := s.send()
		if a.replayed() != (today == "tuesday") {
			t.Fatalf("%s: replayed %v", today, a.replayed())
		}
		want := http.Header{
			"X-Request-Id":                {today},
			"Access-Control-Allow-Origin": {"https://" + today + ".example"},
			"Vary":                        {"Origin", "Accept"},
			"Cache-Control":               {"no-store"},
			"X-Powered-By":                nil,
		}
		for name := range want {
			if !slices.Equal(a.header[name], want[name]) {
				t.Errorf("%s: %s: %q, want %q", today, name, a.header[name], want[name])
			}
		}
	}
}

// conformance: 42
func TestCookies(t *testing.T) {
	t.Parallel()
	h := func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "secret"})
		w.Header().Set("X-Kept", "kept")
	}
	s := serve(t, redistest.Mini(t), h)
	first, again := s.send(), s.send()
	s.want(first, http.StatusOK, middleware.CookiesDropped)
	s.want(again, http.StatusOK, middleware.Replayed)
	if first.header.Get("Set-Cookie") == "" || again.header.Get("Set-Cookie") != "" || again.header.Get("X-Kept") == "" {
		t.Errorf("first %v, replay %v; want the cookie on the first alone", first.header, again.header)
	}

	s = serve(t, redistest.Mini(t), h, middleware.WithCookies())
	first, again = s.send(), s.send()
	s.want(first, http.StatusOK, middleware.Executed)
	if !again.replayed() || again.header.Get("Set-Cookie") != first.header.Get("Set-Cookie") {
		t.Errorf("WithCookies: replay %v, want the cookie", again.header)
	}
}
