package sqljournal_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// shop takes orders, whose outcome is unknown, as after a crash.
type shop struct {
	*testing.T
	d     dbtest.Database
	j     *sqljournal.Journal
	redis *miniredis.Miniredis // nil without Redis
	m     *middleware.Middleware
	h     http.Handler
	runs  int
	key   string // of the last run
}

func newShop(t *testing.T, d dbtest.Database, mode string, alone bool, opts ...middleware.Option) *shop {
	t.Helper()
	s := &shop{T: t, d: d, j: modes[mode](d, t)}
	locker := lock.None(namespace)
	if !alone {
		locker, s.redis = newLocker(t)
	}
	s.m = middleware.New(locker, keyfunc.Standard(keyfunc.Anonymous()), append(opts, middleware.WithJournal(s.j))...)
	s.h = s.m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := middleware.FromContext(r.Context())
		s.runs, s.key = s.runs+1, run.Key()
		if s.j.IsIntent() {
			mustFail(t, "Note", s.j.Note(r.Context(), []byte("order 7")), nil)
		}
		run.Unknown()
		w.WriteHeader(http.StatusBadGateway)
	}))
	return s
}

// forget lets Redis forget everything, so that the journal answers.
func (s *shop) forget() {
	if s.redis != nil {
		s.redis.FlushAll()
	}
}

// want sends an order, and checks the status of the answer and what is in its body.
func (s *shop) want(order string, status int, part string) {
	s.Helper()
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(order))
	r.Header.Set("Idempotency-Key", strings.ReplaceAll(s.Name(), "/", "-"))
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	if w.Code != status || !strings.Contains(w.Body.String(), part) {
		s.Errorf("order %s: got %d %s, want %d %s", order, w.Code, w.Body, status, part)
	}
}

// A run died after its effect. The sweep finds the order, and its customer gets the response: from the journal, from Redis, and
// not with another body.
func TestSweepAnswersTheCustomer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for name, alone := range map[string]bool{"with Redis": false, "alone": true} {
			t.Run(name, func(t *testing.T) {
				s := newShop(t, d, "intent", alone, middleware.WithEncryption(make([]byte, 32)))
				db := d.Open(t)
				s.want("7", http.StatusBadGateway, "")
				s.want("7", http.StatusConflict, "in-flight")
				expireLimit(t, d, db, journal.Run{Key: s.key})
				s.forget()
				s.want("7", http.StatusConflict, "outcome-unknown")
				s.forget() // the retry's claim, which is released in the background
				mustSweep(t, s.j, 1, func(ctx context.Context, u sqljournal.Unfinished) error {
					if u.Key != s.key || string(u.Note) != "order 7" {
						t.Errorf("handed out %q, %q", u.Key, u.Note)
					}
					record, err := s.m.Record(u.Key, middleware.Responded(http.StatusCreated, nil, []byte("paid")))
					if err != nil {
						return err
					}
					return u.Done(ctx, db, time.Hour, record)
				})
				for range 2 {
					s.want("7", http.StatusCreated, "paid")
					s.want("8", http.StatusUnprocessableEntity, "key-reused")
				}
				s.forget()
				s.want("7", http.StatusCreated, "paid")
				if s.runs != 1 {
					t.Errorf("%d runs, want 1", s.runs)
				}
			})
		}
	})
}

// An operator's resolution of a run is the outcome in the journal too: it stands when Redis forgets.
func TestResolve(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		s := newShop(t, d, mode, false, middleware.WithAtMostOnce())
		s.want("7", http.StatusBadGateway, "")
		expireLimit(t, d, d.Open(t), journal.Run{Key: s.key}) // or an operator would have to wait
		s.redis.FastForward(time.Hour)                        // and for the claim
		found, err := s.m.Inspect(t.Context(), s.key)
		mustFail(t, "Inspect", err, nil)
		err = s.m.Resolve(t.Context(), s.key, cmp.Or(found.Journal.Token, found.Redis.Token), middleware.Responded(http.StatusAccepted, nil, []byte("said")))
		mustFail(t, "Resolve", err, nil)
		for range 2 {
			s.want("7", http.StatusAccepted, "said")
			s.forget()
		}
	})
}
