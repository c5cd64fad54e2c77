package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// Of two middlewares with different keys around one handler, the outer one does not store a refusal of the inner one that a
// retry may overcome.
func TestOuterDoesNotStoreTheInnersRefusal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		// the event's id is in the body; the gateway around it wants a key for each delivery
		s := serveKeyed(t, newLocker(t, b.Client(t)), fixedKey, behind(t, g, payOnce()))
		gateway := middleware.Idempotency(newLocker(t, b.Client(t)), keyfunc.Standard(keyfunc.BasicUser()))
		s.outer = func(h http.Handler) http.Handler { return gateway(h) }
		done := s.inBackground(g, key("delivery1"))
		a := s.send(key("delivery2"))
		if a.problem() != "in-flight" {
			t.Errorf("beside the first: %d %s, want in-flight", a.status, a.body)
		}
		close(g.open)
		<-done
		a = s.send(key("delivery2")) // as told by Retry-After and X-Should-Retry
		if a.problem() == "in-flight" {
			t.Errorf("nothing runs, and the retry gets %d %s, replayed %v, X-Should-Retry %q, Retry-After %q",
				a.status, a.problem(), a.replayed(), a.header.Get("X-Should-Retry"), a.header.Get("Retry-After"))
		}
	})
}

// A handler that has had an effect, and then calls a handler with its own protection, is not run again.
func TestOuterAtMostOnceKeepsTheInnersRefusal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		inner := serveKeyed(t, newLocker(t, b.Client(t)), fixedKey, behind(t, g, payOnce()))
		gateway := middleware.Idempotency(newLocker(t, b.Client(t)), keyfunc.Standard(keyfunc.BasicUser()), middleware.WithAtMostOnce())
		effects := make(chan struct{}, 10)
		inner.outer = func(h http.Handler) http.Handler {
			return gateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				effects <- struct{}{}
				h.ServeHTTP(w, r)
			}))
		}
		done := inner.inBackground(g, key("delivery1"))
		for range 2 {
			if a := inner.send(key("delivery2")); a.problem() != "in-flight" {
				t.Errorf("%d %s, want in-flight", a.status, a.body)
			}
		}
		close(g.open)
		<-done
		if n := len(effects); n != 2 {
			t.Errorf("%d effects of two requests", n)
		}
	})
}

// A transaction inside of a run without a journal is not that of the run around it, which has one.
func TestTransactionInsideOfARunWithoutAJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			b.FlushAll(t)
			locker := newLocker(t, b.Client(t))
			inner := middleware.Idempotency(locker, fixedKey)(payInTx(j))
			gateway := middleware.Idempotency(locker, keyfunc.Header("Idempotency-Key"), middleware.WithJournal(j))
			h := gateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner.ServeHTTP(httptest.NewRecorder(), r)
				if err := j.inTx(r.Context(), func() error { return created(w) }); err != nil {
					t.Errorf("the outer transaction: %v", err)
				}
			}))
			for range 2 {
				r, w := httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder()
				r.Header.Set("Idempotency-Key", "k1")
				h.ServeHTTP(w, r)
				if w.Code != http.StatusCreated || w.Body.String() != "created" {
					t.Errorf("%d %q, want the outer run's response", w.Code, w.Body)
				}
			}
			j.want(t, 2, 1) // both effects, and the row of the outer run alone
		})
	})
}

// A middleware in shadow changes nothing: a transaction inside of it belongs to the run around it.
func TestTransactionInsideOfAShadow(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			locker := newLocker(t, b.Client(t))
			shadow := middleware.Idempotency(locker, fixedKey, middleware.WithShadow())
			gateway := middleware.Idempotency(locker, keyfunc.Header("Idempotency-Key"), middleware.WithJournal(j))
			h := gateway(shadow(payInTx(j)))
			for range 2 {
				b.FlushAll(t)
				r, w := httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder()
				r.Header.Set("Idempotency-Key", "k1")
				if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
					t.Errorf("%d %q", w.Code, w.Body)
				}
			}
			j.want(t, 1, 1)
		})
	})
}
