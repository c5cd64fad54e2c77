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
