package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// serveAlone starts a site without Redis, which an intent journal protects alone.
func serveAlone(t *testing.T, j *memJournal, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	locker := lock.None("test")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return serveOn(t, locker, h, append(opts, middleware.WithJournal(j))...)
}

func TestJournalAlone(t *testing.T) {
	t.Parallel()
	s := serveAlone(t, newJournal(true), payOnce())
	if e := s.want(s.send(), http.StatusCreated, middleware.Executed); e.Err != nil {
		t.Errorf("Err %v", e.Err)
	}
	if a := s.send(); !a.replayed() || a.body != `{"run":1}` {
		t.Errorf("%+v", a)
	}
	s.event()
	s.want(s.send(body("application/json", `{"amount":1}`)), http.StatusUnprocessableEntity, middleware.Reused)
	s.want(s.send(user("bob")), http.StatusCreated, middleware.Executed)
	s.wantRuns(2)

	storageKey := s.locker.StorageKey(keyfunc.StandardKey("ann", http.MethodPost, "/payments", "k1"))
	m := middleware.New(s.locker, keyfunc.Anonymous(), middleware.WithJournal(newJournal(true)))
	if _, err := m.Inspect(t.Context(), storageKey); err != nil {
		t.Errorf("Inspect: %v", err)
	}
}

// A duplicate in flight gets 409 or, with WithWait, the response. It does not run, although nothing keeps it out but the
// journal's row.
func TestJournalAloneInFlight(t *testing.T) {
	t.Parallel()
	j, g := newJournal(true), newGate()
	first := serveAlone(t, j, behind(t, g, payOnce()))
	waits := serveAlone(t, j, payOnce(), middleware.WithWait(20*time.Second))
	done := first.inBackground(g)

	a := first.send()
	first.want(a, http.StatusConflict, middleware.InFlight)
	if a.problem() != "in-flight" || a.header.Get("Retry-After") == "" || a.header.Get("X-Should-Retry") != "true" {
		t.Errorf("%+v", a)
	}
	looked := j.awaitLook()
	waiting := waits.begin()
	<-looked
	close(g.open)
	first.want(<-done, http.StatusCreated, middleware.Executed)
	if e := waits.want(<-waiting, http.StatusCreated, middleware.Replayed); e.Wait.Duration == 0 {
		t.Errorf("%+v, want a Wait", e)
	}
	first.wantRuns(1)
	waits.wantRuns(0)
}

// awaitLook returns a channel that is closed at the next Look.
func (j *memJournal) awaitLook() <-chan struct{} {
	looked := make(chan struct{})
	isClosed := false
	j.setHooks(func(op string) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		if op == "look" && !isClosed {
			isClosed = true
			close(looked)
		}
		return nil
	}, nil)
	return looked
}

// The database is the only one that could tell whether the request may run.
func TestJournalAloneDoesNotAnswer(t *testing.T) {
	t.Parallel()
	j := newJournal(true)
	s := serveAlone(t, j, payOnce())
	j.setHooks(at("begin", 2), nil)
	s.want(s.send(), http.StatusServiceUnavailable, middleware.StoreUnavailable)
	s.wantRuns(0)
	s.want(s.send(), http.StatusCreated, middleware.Executed)
}

func TestJournalAloneAndKeyAge(t *testing.T) {
	t.Parallel()
	j := newJournal(true)
	withJournal := middleware.WithJournal(j)
	runs, refuses := serveAlone(t, j, payOnce(), young(withJournal)...), serveAlone(t, j, payOnce(), old(withJournal)...)
	stale, other := aged(2*time.Hour), aged(3*time.Hour)
	runs.want(runs.send(stale), http.StatusCreated, middleware.Executed)
	refuses.want(refuses.send(stale), http.StatusCreated, middleware.Replayed)
	refuses.want(refuses.send(other), http.StatusBadRequest, middleware.ExpiredKey)
	refuses.wantRuns(0)
}

// A key that is too old never runs, so a duplicate that has waited for a run which left nothing is not asked to repeat.
func TestJournalAloneKeyAgeAfterAWait(t *testing.T) {
	t.Parallel()
	j, g := newJournal(true), newGate()
	withJournal := middleware.WithJournal(j)
	runs := serveAlone(t, j, behind(t, g, func(_ http.ResponseWriter, r *http.Request) {
		_ = middleware.FromContext(r.Context()).Discard()
	}), young(withJournal)...)
	refuses := serveAlone(t, j, payOnce(), old(withJournal, middleware.WithWait(20*time.Second))...)
	stale := aged(2 * time.Hour)
	done := runs.inBackground(g, stale)
	looked := j.awaitLook()
	waiting := refuses.begin(stale)
	<-looked
	close(g.open)
	<-done
	refuses.wantRefused(<-waiting, http.StatusBadRequest, middleware.ExpiredKey, "key-expired")
	refuses.wantRuns(0)
}
