package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// lonely is a service without Redis. An intent journal in its database protects the handler alone.
type lonely struct {
	t       *testing.T
	d       dbtest.Database
	db      *sql.DB
	journal *sqljournal.Journal
	handler http.Handler
	runs    int
	unknown journal.Run // whose outcome is
}

// eachLonely runs a test on each kind of database. pay is the handler.
func eachLonely(t *testing.T, pay func(*lonely, http.ResponseWriter, *http.Request), test func(*lonely)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		l := &lonely{t: t, d: d, db: withEffects(t, d), journal: modes["intent"](d, t)}
		locker := lock.None(namespace)
		t.Cleanup(func() {
			if err := locker.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithJournal(l.journal))
		l.handler = once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l.runs++
			pay(l, w, r)
		}))
		test(l)
	})
}

// payInTx is a handler whose effect is in the database.
func payInTx(l *lonely, w http.ResponseWriter, r *http.Request) {
	err := l.journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
		w.WriteHeader(http.StatusCreated)
		_, failed := io.WriteString(w, "paid")
		return errors.Join(failed, take(tx, payment1))
	})
	if err != nil {
		l.t.Error(err)
	}
}

// payment1 is the effect.
var payment1 = journal.Run{Key: "payment 1"}

// want sends the request, and checks the answer: its status, what is in its body, and whether it is a replay.
func (l *lonely) want(amount string, status int, part string, replayed bool) {
	l.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(amount))
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", "k1")
	w := httptest.NewRecorder()
	l.handler.ServeHTTP(w, r)
	if w.Code != status || !strings.Contains(w.Body.String(), part) || (w.Header().Get("Idempotent-Replayed") == "true") != replayed {
		l.t.Errorf("got %d %s %v, want %d %s, replayed %v", w.Code, w.Body, w.Header(), status, part, replayed)
	}
}

// wantEnd checks what has happened in the end.
func (l *lonely) wantEnd(runs int) {
	l.t.Helper()
	l.want("1250", http.StatusCreated, "paid", true)
	if l.runs != runs {
		l.t.Errorf("%d runs, want %d", l.runs, runs)
	}
	mustHaveEffects(l.t, l.db, payment1, 1)
}

func TestAloneInTx(t *testing.T) {
	eachLonely(t, payInTx, func(l *lonely) {
		l.want("1250", http.StatusCreated, "paid", false)
		l.want("1", http.StatusUnprocessableEntity, "key-reused", false)
		l.wantEnd(1)
	})
}

// The outcome of a run is unknown, as after a crash. A duplicate meanwhile, and a retry until the run's limit, are in
// flight. After it the outcome is unknown until a sweep has freed the row.
func TestAloneUnknown(t *testing.T) {
	eachLonely(t, func(l *lonely, w http.ResponseWriter, r *http.Request) {
		if l.runs > 1 {
			payInTx(l, w, r)
			return
		}
		l.want("1250", http.StatusConflict, "in-flight", false)
		l.unknown.Key = middleware.FromContext(r.Context()).Key()
		middleware.FromContext(r.Context()).Unknown()
	}, func(l *lonely) {
		l.want("1250", http.StatusOK, "", false)
		l.want("1250", http.StatusConflict, "in-flight", false)
		expireLimit(l.t, l.d, l.db, l.unknown)
		l.want("1250", http.StatusConflict, "outcome-unknown", false)
		n, err := l.journal.Sweep(l.t.Context(), 0, time.Minute, func(ctx context.Context, u sqljournal.Unfinished) error {
			return u.Free(ctx, l.db)
		})
		if n != 1 || err != nil {
			l.t.Errorf("Sweep: %d, %v", n, err)
		}
		l.want("1250", http.StatusCreated, "paid", false)
		l.wantEnd(2)
	})
}
