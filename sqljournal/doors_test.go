package sqljournal_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A run died after its effect. The sweep finds the order, and its customer gets the response: from the journal, from Redis, and
// not with another body.
func TestSweepAnswersTheCustomer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db, runs, key := modes["intent"](d, t), d.Open(t), 0, ""
		locker, redis := newLocker(t)
		m := middleware.New(locker, keyfunc.Standard(keyfunc.Anonymous()), middleware.WithJournal(j), middleware.WithEncryption(make([]byte, 32)))
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			run := middleware.FromContext(r.Context())
			runs, key = runs+1, run.Key()
			mustFail(t, "Note", j.Note(r.Context(), []byte("order 7")), nil)
			run.Unknown()
			w.WriteHeader(http.StatusBadGateway)
		}))
		want := func(order string, status int, part string) {
			t.Helper()
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(order))
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != status || !strings.Contains(w.Body.String(), part) {
				t.Errorf("order %s: got %d %s, want %d %s", order, w.Code, w.Body, status, part)
			}
		}
		want("7", http.StatusBadGateway, "")
		want("7", http.StatusConflict, "in-flight")
		expireLimit(t, d, db, journal.Run{Key: key})
		redis.FlushAll()
		want("7", http.StatusConflict, "outcome-unknown")
		redis.FlushAll() // the retry's claim, which is released in the background
		mustSweep(t, j, 1, func(ctx context.Context, u sqljournal.Unfinished) error {
			if u.Key != key || string(u.Note) != "order 7" {
				t.Errorf("handed out %q, %q", u.Key, u.Note)
			}
			record, err := m.Record(u.Key, middleware.Responded(http.StatusCreated, nil, []byte("paid")))
			mustFail(t, "Record", err, nil)
			return u.Done(ctx, db, time.Hour, record)
		})
		for range 2 {
			want("7", http.StatusCreated, "paid")
			want("8", http.StatusUnprocessableEntity, "key-reused")
		}
		redis.FlushAll()
		want("7", http.StatusCreated, "paid")
		if runs != 1 {
			t.Errorf("%d runs, want 1", runs)
		}
	})
}
