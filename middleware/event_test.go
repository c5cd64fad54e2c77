package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// phases returns the names of an Event's phases that happened, in the order of the fields. It checks that they stand in
// the order of time, within the time given, and do not overlap.
func phases(t *testing.T, e middleware.Event, from time.Time) string {
	t.Helper()
	var names []string
	last := from
	for _, p := range []struct {
		name string
		middleware.Phase
	}{
		{"claim", e.Claim}, {"wait", e.Wait}, {"journal", e.Journal}, {"handler", e.Handler}, {"settle", e.Settle},
	} {
		switch {
		case p.Start.IsZero() && p.Duration == 0:
			continue
		case p.Start.Before(last) || p.Duration <= 0:
			t.Errorf("%s began %v after the phase before it, and took %v", p.name, p.Start.Sub(last), p.Duration)
		}
		names, last = append(names, p.name), p.Start.Add(p.Duration)
	}
	if time.Now().Before(last) {
		t.Errorf("the phases end in the future: %v", last)
	}
	return strings.Join(names, " ")
}

func TestEventPhases(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts          []middleware.Option
		handler       http.HandlerFunc
		edit          edit
		first, replay string
	}{
		"default":     {nil, payOnce(), key("k"), "claim handler settle", "claim"},
		"journal":     {[]middleware.Option{middleware.WithJournal(newJournal(true))}, payOnce(), key("k"), "claim journal handler settle", "claim"},
		"unknown":     {[]middleware.Option{middleware.WithAtMostOnce()}, unknown, key("k"), "claim handler", "claim"},
		"waits":       {[]middleware.Option{middleware.WithWait(time.Millisecond)}, unknown, key("k"), "claim handler", "claim wait"}, // the time is the fault
		"unprotected": {nil, payOnce(), noKey, "handler", "handler"},
		"freed": {
			nil, func(_ http.ResponseWriter, r *http.Request) { _ = middleware.FromContext(r.Context()).Discard() }, key("k"),
			"claim handler settle", "claim handler settle",
		},
	} {
		s := serve(t, redistest.Mini(t), test.handler, test.opts...)
		for _, want := range []string{test.first, test.replay} {
			from := time.Now()
			s.send(test.edit)
			e := s.event()
			if got := phases(t, e, from); got != want || e.Method != http.MethodPost || want == "claim handler settle" && e.Size == 0 && name != "freed" {
				t.Errorf("%s: %s: %s, want %s; %+v", name, e.Outcome, got, want, e)
			}
		}
	}
}

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func traced(traceparent string) middleware.Option {
	return middleware.WithTraceparent(func(context.Context) string { return traceparent })
}

// Size is the length of the middleware's part of the value in Redis, Age what has passed since, and Traceparent that of the
// run, in every form of storage. An instance without the option tells the trace too.
func TestEventOfAReplay(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, opts := range forms() {
			b.FlushAll(t)
			s := serve(t, b, payOnce(), append(opts, traced(someTrace))...)
			before := time.Now().Truncate(time.Millisecond)
			first := s.want(s.send(), http.StatusCreated, middleware.Executed)
			without := serve(t, b, payOnce(), opts...)
			again := without.want(without.send(), http.StatusCreated, middleware.Replayed)
			if stored := len(rawOf(t, b, first.Key)[recordAt:]); first.Size != stored || again.Size != stored {
				t.Errorf("%s: sizes %d and %d, want %d", name, first.Size, again.Size, stored)
			}
			if first.Age != 0 || again.Age <= 0 || again.Age > time.Since(before) || first.Traceparent != "" || again.Traceparent != someTrace {
				t.Errorf("%s: %+v, then %+v", name, first, again)
			}
			e := s.want(s.send(body("application/json", "{}")), http.StatusUnprocessableEntity, middleware.Reused)
			if e.Size != 0 || e.Age != 0 {
				t.Errorf("%s: size %d and age %v of a refusal", name, e.Size, e.Age)
			}
		}
	})
}

// A route-level middleware knows the pattern at once, one around a mux only once that has run. The observers are called in
// their order, after the response, and the function of WithTraceparent once for a run.
func TestEventPattern(t *testing.T) {
	t.Parallel()
	const path = "/payments/7"
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	type middlewares = func(http.Handler) http.Handler
	for name, test := range map[string]struct {
		mount         func(once middlewares) http.Handler
		first, replay string
	}{
		"ServeMux, one route": {func(once middlewares) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /payments/{id}", once(ok))
			return mux
		}, "POST /payments/{id}", "POST /payments/{id}"},
		"chi, With": {func(once middlewares) http.Handler {
			r := chi.NewRouter()
			r.With(once).Post("/payments/{id}", ok)
			return r
		}, "/payments/{id}", "/payments/{id}"},
		"chi, Use": {func(once middlewares) http.Handler {
			r := chi.NewRouter()
			r.Use(once)
			r.Post("/payments/{id}", ok)
			return r
		}, "/payments/{id}", ""},
		"none": {func(once middlewares) http.Handler { return once(ok) }, "", ""},
	} {
		var events []middleware.Event
		calls, asked := 0, 0
		var w *httptest.ResponseRecorder
		h := test.mount(middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), fixedKey,
			middleware.WithTraceparent(func(context.Context) string { asked++; return someTrace }),
			middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) }),
			middleware.WithObserver(func(context.Context, middleware.Event) {
				if calls++; calls != len(events) {
					t.Error("the second observer is called first")
				}
				if w.Code != http.StatusCreated {
					t.Error("the observer is called before the response is sent")
				}
			})))
		for range 2 {
			w = httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		}
		if len(events) != 2 || calls != 2 || asked != 1 || events[0].Pattern != test.first || events[1].Pattern != test.replay ||
			events[1].Outcome != middleware.Replayed {
			t.Errorf("%s: %+v, asked %d times; want the patterns %q and %q", name, events, asked, test.first, test.replay)
		}
	}
}
