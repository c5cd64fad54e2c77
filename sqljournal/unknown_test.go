package sqljournal_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// An intent handler that gets no answer from the provider calls Unknown: its row is swept like that of a crash, and
// nothing runs before that.
func TestUnknownIsSwept(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		locker := lock.New(client, namespace, lock.WithOpTimeout(30*time.Second))
		defer func() { _ = locker.Close(context.Background()); _ = client.Close() }()
		db := d.Open(t)
		j := sqljournal.Intent(db, namespace, d.Options()...)
		runs, storageKey := 0, ""
		pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			run := middleware.FromContext(r.Context())
			runs, storageKey = runs+1, run.Key()
			if err := j.Note(r.Context(), []byte("order 7")); err != nil {
				t.Error(err)
			}
			run.Unknown()
			w.WriteHeader(http.StatusBadGateway)
		})
		h := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), middleware.WithJournal(j))(pay)
		want := func(status, total int) {
			t.Helper()
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("7"))
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != status || runs != total {
				t.Errorf("%d after %d runs, want %d after %d", w.Code, runs, status, total)
			}
		}
		want(http.StatusBadGateway, 1)
		want(http.StatusConflict, 1) // in-flight
		expireLimit(t, d, db, journal.Run{Key: storageKey})
		want(http.StatusConflict, 1)

		n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
			if u.Key != storageKey || string(u.Note) != "order 7" {
				t.Errorf("handed out %q, %q", u.Key, u.Note)
			}
			return u.Free(ctx, db) // the provider says no
		})
		if n != 1 || err != nil {
			t.Errorf("Sweep: %d, %v", n, err)
		}
	})
}
