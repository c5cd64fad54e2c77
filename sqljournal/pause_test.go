package sqljournal_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A client that meets an unknown outcome is told to wait for as long as the run is old, from 30 s to 5 minutes, whether
// or not a sweep has the row. After the retention it is told that no repetition helps.
func TestPauseOfAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	const slack = 100 // seconds that the test may take between two statements
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db, key := d.Open(t), ""
		j := sqljournal.Intent(db, namespace, d.Options()...)
		once := middleware.Idempotency(lock.None(namespace), keyfunc.Anonymous(), middleware.WithJournal(j),
			middleware.WithRetention(24*time.Hour))
		h := once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			key = middleware.FromContext(r.Context()).Key()
			middleware.FromContext(r.Context()).Unknown() // as if its process died
		}))
		ask := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders", nil))
			return w
		}
		for _, test := range []struct {
			age         time.Duration
			least, most int // of Retry-After; 0: there is none
		}{
			{0, 30, slack},
			{200 * time.Second, 200, 200 + slack},
			{5 * time.Minute, 300, 300},
			{23 * time.Hour, 300, 300},
			{24 * time.Hour, 0, 0},
		} {
			ask()
			expireLimit(t, d, db, journal.Run{Key: key})
			mustExec(t, db, "update onceguard_journal set began_at = "+d.Now()+" - "+d.Interval(test.age))
			check := func(when string) {
				t.Helper()
				w := ask()
				pause, _ := strconv.Atoi(w.Header().Get("Retry-After"))
				if w.Code != http.StatusConflict || w.Header().Get("X-Should-Retry") != strconv.FormatBool(test.least > 0) ||
					pause < test.least || pause > test.most {
					t.Errorf("%s, after %v: %d %v, want a pause of %d s to %d s", when, test.age, w.Code, w.Header(), test.least, test.most)
				}
			}
			check("before a sweep")
			n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
				check("during a sweep")
				return u.Free(ctx, db)
			})
			if n != 1 || err != nil {
				t.Fatalf("Sweep: %d, %v, want 1", n, err)
			}
		}
	})
}
