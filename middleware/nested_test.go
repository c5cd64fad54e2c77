package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// What a run does with its key when a middleware inside of it, under another key, has refused the request for now. A
// retry comes at once: the key inside is still taken.
//
// fault: the handler has done without the middleware inside, and succeeded -> its response is stored
// fault: three middlewares, of which the innermost refuses -> neither of the others stores the refusal
func TestRefusedInside(t *testing.T) {
	pass := func(inner http.Handler) http.Handler { return inner }
	after := func(says func(*middleware.Execution)) func(http.Handler) http.Handler {
		return func(inner http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				says(middleware.FromContext(r.Context()))
				inner.ServeHTTP(w, r)
			})
		}
	}
	instead := func(status int) func(http.Handler) http.Handler {
		return func(inner http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner.ServeHTTP(httptest.NewRecorder(), r)
				w.WriteHeader(status)
			})
		}
	}
	flushed := func(inner http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			_ = http.NewResponseController(w).Flush()
			inner.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	discard := after(func(e *middleware.Execution) { _ = e.Discard() })
	keep := after((*middleware.Execution).Keep)
	with := func(opts ...middleware.Option) func() []middleware.Option {
		return func() []middleware.Option { return opts }
	}
	byDefault, atMostOnce, shadow := with(), with(middleware.WithAtMostOnce()), with(middleware.WithShadow())
	transactional := func() []middleware.Option { return with(middleware.WithJournal(newJournal(false)))() }
	intent := func() []middleware.Option { return with(middleware.WithJournal(newJournal(true)))() }
	for name, test := range map[string]struct {
		h            func(inner http.Handler) http.Handler
		opts         func() []middleware.Option
		first, again middleware.Outcome
	}{
		"passed on":                         {pass, byDefault, middleware.Freed, middleware.Freed},
		"passed on, shadow":                 {pass, shadow, middleware.Freed, middleware.Freed},
		"passed on, transactional":          {pass, transactional, middleware.Freed, middleware.Freed},
		"passed on, intent":                 {pass, intent, middleware.Unknown, middleware.InFlight},
		"passed on, at most once":           {pass, atMostOnce, middleware.Unknown, middleware.InFlight},
		"translated":                        {instead(http.StatusTeapot), byDefault, middleware.Freed, middleware.Freed},
		"translated, at most once":          {instead(http.StatusTeapot), atMostOnce, middleware.Unknown, middleware.InFlight},
		"done without":                      {instead(http.StatusCreated), byDefault, middleware.Executed, middleware.Replayed},
		"done without, at most once":        {instead(http.StatusCreated), atMostOnce, middleware.Executed, middleware.Replayed},
		"nothing happened, at most once":    {discard, atMostOnce, middleware.Freed, middleware.Freed},
		"the effect is there":               {keep, byDefault, middleware.Executed, middleware.Replayed},
		"the effect is there, at most once": {keep, atMostOnce, middleware.Executed, middleware.Replayed},
		"sent":                              {flushed, byDefault, middleware.Executed, middleware.Replayed},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g, locker := newGate(), newLocker(t, b.Client(t))
				inner := serveKeyed(t, locker, fixedKey, behind(t, g, payOnce()))
				middle := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()))(inner.handler)
				done := inner.inBackground(g)
				for depth, h := range map[string]http.Handler{"two": inner.handler, "three": middle} {
					s := serveOn(t, locker, test.h(h).ServeHTTP, test.opts()...)
					for _, outcome := range []middleware.Outcome{test.first, test.again} {
						a := s.send(key(depth))
						if e := s.event(); e.Outcome != outcome {
							t.Errorf("%s middlewares: %d %s, %s, error %v; want %s", depth, a.status, a.body, e.Outcome, e.Err, outcome)
						}
					}
				}
				close(g.open)
				<-done
			})
		})
	}
}
