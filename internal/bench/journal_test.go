package main

import (
	"context"
	"database/sql"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

func TestJournal(t *testing.T) {
	redisFor(t)
	programs := databases()
	if len(programs) == 0 {
		t.Skip("no database server is installed")
	}
	var out, progress strings.Builder
	cfg := compareConfig{rounds: 2, time: 5 * time.Millisecond, callers: []int{1, 16}}
	if err := journal(t.Context(), session{out: &out, progress: &progress}, cfg); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for program, want := range map[string]string{
		"postgres": "- PostgreSQL 1", "mariadbd": "- MariaDB 1", "mysqld": "- MySQL ",
	} {
		if strings.Contains(strings.Join(programs, " "), program) && !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	for _, want := range []string{
		"Redis server v=", "jackc/pgx/v5 v5.", ", 1 caller | ", ", 16 callers |", "| transactional journal / the transaction alone | ",
		"| intent journal / the transaction alone | ", "### First request with a payment, answers a second",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}

// Answers that look right are not enough: the payment and the journal's row have to be there.
func TestUnearnedPaymentsAreErrors(t *testing.T) { eachDatabase(t, testUnearned) }

func testUnearned(t *testing.T, d *database) {
	c := conditionsFor(redisFor(t), 1)
	c.database = d
	rollBack := func(d *database) (inTx, []middleware.Option) {
		return func(ctx context.Context, f func(*sql.Tx) error) error {
			tx, err := d.pool.BeginTx(ctx, nil)
			if err == nil {
				err = f(tx)
			}
			if err != nil {
				return err
			}
			return tx.Rollback()
		}, nil
	}
	elsewhere := func(d *database) (inTx, []middleware.Option) {
		_, opts := inJournal(sqljournal.Intent)(d)
		in, _ := plainly(d)
		return in, opts
	}
	for name, test := range map[string]struct {
		setUp setUp
		want  string
	}{
		"no payment": {payments(rollBack, unprotectedly, 0, 0), "0 payments, "},
		"no journal": {payments(plainly, protectedly, 1, 1), "0 rows of the journal that are done"},
		"no keys":    {payments(plainly, unprotectedly, 1, 0), "0 keys in Redis, want 10"},
		"elsewhere":  {payments(elsewhere, protectedly, 1, 1), ""},
	} {
		_, err := measure(t.Context(), subjectOf(t, test.setUp, c), c, limit{answers: 10})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
	}
}

// A transaction that fails is not an answer.
func TestFailedPaymentIsAnError(t *testing.T) { eachDatabase(t, testFailed) }

func testFailed(t *testing.T, d *database) {
	c := conditionsFor(redisFor(t), 1)
	c.database = d
	broken := func(*database) (inTx, []middleware.Option) {
		return func(context.Context, func(*sql.Tx) error) error { return http.ErrServerClosed }, nil
	}
	_, err := measure(t.Context(), subjectOf(t, payments(broken, unprotectedly, 0, 0), c), c, limit{answers: 10})
	if err == nil || !strings.Contains(err.Error(), "status 500, want [201]: http: Server closed") {
		t.Errorf("error %v", err)
	}
}
