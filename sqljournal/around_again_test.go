package sqljournal_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A library runs a transaction again after a serialization failure. The client and every retry get the response of the
// attempt that is committed, with nothing of the one that is not.
//
// fault: another transaction makes the first COMMIT fail with 40001. Expected: one effect, and its own response.
func TestAroundRunAgain(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := dbtest.PostgreSQL(t)
			db := d.Open(t)
			mustExec(t, db, "create table payments (id integer not null)")
			j := modes[mode](d, t)
			locker, server, stop := startLocker(lock.WithOpTimeout(30 * time.Second))
			defer stop()
			attempts := 0
			once := middleware.Idempotency(locker, keyfunc.Header("Idempotency-Key"), middleware.WithJournal(j))
			h := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err := j.Around(r.Context(), func(complete func(sqljournal.Execer) error) error {
					return runAgain(r.Context(), d, func(tx pgx.Tx) error {
						attempts++
						if err := payNext(r.Context(), tx, w, attempts); err != nil {
							return err
						}
						if attempts == 1 {
							payBeside(t, d)
						}
						return complete(sqljournal.Pgx(tx))
					})
				})
				if err != nil {
					t.Errorf("Around: %v", err)
				}
			}))
			for _, what := range []string{"the first answer", "a replay from Redis", "a replay from the journal"} {
				r := httptest.NewRequest(http.MethodPost, "/payments", nil)
				r.Header.Set("Idempotency-Key", "k1")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusCreated || w.Header().Get("Location") != "/payments/2" || w.Body.String() != "payment 2" ||
					w.Header().Get("X-First-Attempt") != "" {
					t.Errorf("%s: %d %v %q, want the second attempt's response alone", what, w.Code, w.Header(), w.Body)
				}
				if what == "a replay from Redis" {
					server.FlushAll()
				}
			}
			var payments int
			if err := db.QueryRow("select count(*) from payments").Scan(&payments); err != nil || payments != 2 || attempts != 2 {
				t.Errorf("%d payments (%v) after %d attempts, want this one and the other's after 2", payments, err, attempts)
			}
		})
	}
}

// runAgain runs fn in a SERIALIZABLE transaction, and again after a serialization failure.
func runAgain(ctx context.Context, d dbtest.Database, fn func(pgx.Tx) error) error {
	conn, err := pgx.Connect(ctx, d.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for {
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.Serializable}, fn)
		var failure *pgconn.PgError
		if !errors.As(err, &failure) || failure.Code != "40001" {
			return err
		}
	}
}

// payNext inserts the payment with the next number, and writes the response.
func payNext(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, attempt int) error {
	var id int
	err := tx.QueryRow(ctx, "insert into payments select count(*) + 1 from payments returning id").Scan(&id)
	if err != nil {
		return err
	}
	if attempt == 1 {
		w.Header().Set("X-First-Attempt", "1")
	}
	w.Header().Set("Location", fmt.Sprintf("/payments/%d", id))
	w.WriteHeader(http.StatusCreated)
	_, err = fmt.Fprintf(w, "payment %d", id)
	return err
}

// payBeside commits another payment, so that an open transaction that has counted the payments cannot be committed.
func payBeside(t *testing.T, d dbtest.Database) {
	t.Helper()
	if err := runAgain(t.Context(), d, func(tx pgx.Tx) error {
		return payNext(t.Context(), tx, httptest.NewRecorder(), 0)
	}); err != nil {
		t.Error(err)
	}
}
