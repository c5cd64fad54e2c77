package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// isolations are the levels of a handler's transaction.
var isolations = []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// deadlock makes a deadlock, of which tx is the victim, and returns its error. In the table locks, other has more work done
// than tx.
func deadlock(t *testing.T, db *sql.DB, tx *sql.Tx) error {
	t.Helper()
	other, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	for _, statement := range []string{"insert into heavy values " + strings.Repeat("(0), ", 200) + "(0)", "update locks set n = n + 1 where id = 1"} {
		if _, err := other.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec("update locks set n = n + 1 where id = 2"); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := other.Exec("update locks set n = n + 1 where id = 2")
		waits <- err
	}()
	_, err = tx.Exec("update locks set n = n + 1 where id = 1")
	if err := <-waits; err != nil {
		t.Fatalf("the other transaction: %v", err)
	}
	return err
}

// withLocks makes the tables that deadlock needs.
func withLocks(t *testing.T, db *sql.DB) {
	t.Helper()
	mustExec(t, db, "create table locks (id int primary key, n int) engine = InnoDB")
	mustExec(t, db, "create table heavy (n int) engine = InnoDB")
	mustExec(t, db, "insert into locks values (1, 0), (2, 0)")
}

// mustDeadlock makes a deadlock that ends tx, and ignores it.
func mustDeadlock(t *testing.T, db *sql.DB, tx *sql.Tx) {
	t.Helper()
	if err := deadlock(t, db, tx); err == nil {
		t.Error("there is no deadlock")
	}
}

// The handler's transaction may have ended before the record is stored. Expected: what the server has rolled back, and the
// handler reports, has not happened. Of everything else it is not known what has happened, and no retry runs, however the
// handler ends.
//
// fault: MySQL: a deadlock that the handler ignores, DDL, a second BEGIN, ROLLBACK or COMMIT in the transaction
func TestTransactionEndsEarly(t *testing.T) {
	t.Parallel()
	errHandler := errors.New("the handler's")
	statements := func(all ...string) func(*testing.T, *sql.DB, *sql.Tx) error {
		return func(t *testing.T, _ *sql.DB, tx *sql.Tx) error {
			for _, statement := range all {
				if _, err := tx.Exec(statement); err != nil {
					t.Errorf("%s: %v", statement, err)
				}
			}
			return nil
		}
	}
	for name, handler := range map[string]struct {
		end        func(*testing.T, *sql.DB, *sql.Tx) error
		rolledBack bool
	}{
		"a deadlock that it returns": {deadlock, true},
		"a deadlock that it ignores": {func(t *testing.T, db *sql.DB, tx *sql.Tx) error {
			mustDeadlock(t, db, tx)
			return nil
		}, false},
		"a deadlock that it ignores, and another that it returns": {func(t *testing.T, db *sql.DB, tx *sql.Tx) error {
			mustDeadlock(t, db, tx)
			if _, err := tx.Exec("insert into effects (id) select 'a part'"); err != nil {
				t.Error(err)
			}
			err := deadlock(t, db, tx)
			if err == nil {
				t.Error("there is no second deadlock")
			}
			return err
		}, true},
		"DDL": {statements("create table more (id int)"), false},
		"DDL, and a lock timeout that it returns": {func(t *testing.T, db *sql.DB, tx *sql.Tx) error {
			return errors.Join(statements("create table more (id int)")(t, db, tx), &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"})
		}, false},
		"a second BEGIN":    {statements("start transaction"), false},
		"DDL and BEGIN":     {statements("create table more (id int)", "start transaction"), false},
		"COMMIT":            {statements("commit"), false},
		"ROLLBACK":          {statements("rollback"), false},
		"LOCK TABLES":       {statements("lock tables effects write, onceguard_journal write", "unlock tables"), false},
		"LOCK TABLES alone": {statements("lock tables effects write"), false},
	} {
		for _, then := range []string{"returns nil", "fails", "panics"} {
			if strings.HasSuffix(name, "that it returns") && then != "returns nil" {
				continue
			}
			t.Run(name+", "+then, func(t *testing.T) {
				t.Parallel()
				for mode, open := range modes {
					d := dbtest.MySQL(t)
					j, db := open(d, t), withEffects(t, d)
					withLocks(t, db)
					run := begin(t, j, newRun(time.Hour))
					x, ctx := protected(j, run, "response")
					var panicked any
					err := func() (err error) {
						defer func() { panicked = recover() }()
						return j.InTx(ctx, nil, func(tx *sql.Tx) error {
							if err := handler.end(t, db, tx); err != nil {
								return err
							}
							if err := take(tx, run); err != nil {
								return err
							}
							switch then {
							case "fails":
								return errHandler
							case "panics":
								panic("the handler's")
							}
							return nil
						})
					}()
					if handler.rolledBack {
						if err == nil || err == journal.ErrAnswered {
							t.Errorf("%s: InTx: got %v, want the deadlock", mode, err)
						}
						mustStand(t, j, db, run)
						mustHaveEffects(t, db, journal.Run{Key: "a part"}, 0)
						continue
					}
					if then == "panics" {
						if panicked == nil {
							t.Errorf("%s: it does not panic", mode)
						}
					} else {
						mustFail(t, mode+": InTx", err, journal.ErrAnswered)
						if !x.unknown {
							t.Errorf("%s: it is said to be known what happened", mode)
						}
					}
					e, err := j.Begin(t.Context(), retried(run))
					if want := map[bool]journal.State{true: running, false: unfinished}[run.Intent]; err != nil || e.State != want {
						t.Errorf("%s: a retry gets %v, %v, want %v", mode, e.State, err, want)
					}
				}
			})
		}
	}
}

// The function of a sweep writes in a transaction of its own, which may have ended before Done or Free. Expected: these fail then,
// and do nothing, so that the row is handed out again.
//
// fault: MySQL: a deadlock that the function of Sweep ignores, or DDL, before Done or Free
func TestSweepsTransactionEndsEarly(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *sql.DB, *sql.Tx){
		"deadlock": func(t *testing.T, db *sql.DB, tx *sql.Tx) {
			mustDeadlock(t, db, tx)
		},
		"DDL": func(t *testing.T, _ *sql.DB, tx *sql.Tx) {
			if _, err := tx.Exec("create table more (id int)"); err != nil {
				t.Error(err)
			}
		},
	} {
		for last, f := range map[string]func(context.Context, sqljournal.Unfinished, *sql.Tx) error{
			"Done": func(ctx context.Context, u sqljournal.Unfinished, tx *sql.Tx) error {
				return u.Done(ctx, tx, time.Hour, []byte("response"))
			},
			"Free": func(ctx context.Context, u sqljournal.Unfinished, tx *sql.Tx) error { return u.Free(ctx, tx) },
		} {
			t.Run(name+", "+last, func(t *testing.T) {
				t.Parallel()
				d := dbtest.MySQL(t)
				j, db := modes["intent"](d, t), withEffects(t, d)
				withLocks(t, db)
				run := unfinishedRows(t, d, db, 1)[0]
				sweep := func(isEnded bool) error {
					_, err := j.Sweep(t.Context(), 0, time.Microsecond, func(_ context.Context, u sqljournal.Unfinished) error {
						tx, err := db.Begin()
						if err != nil {
							return err
						}
						defer func() { _ = tx.Rollback() }()
						if isEnded {
							end(t, db, tx)
						}
						if err := f(t.Context(), u, tx); err != nil {
							return err
						}
						return tx.Commit()
					})
					return err
				}
				if err := sweep(true); err == nil || !strings.Contains(err.Error(), "has ended") {
					t.Errorf("%s: got %v, want that the transaction has ended", last, err)
				}
				if e, err := j.Look(t.Context(), run.Key); err != nil || e.State != journal.Unfinished {
					t.Errorf("the row is %v, %v", e.State, err)
				}
				if err := sweep(false); err != nil {
					t.Errorf("%s: %v", last, err)
				}
				if e, err := j.Look(t.Context(), run.Key); err != nil || e.State == journal.Unfinished {
					t.Errorf("in the end the row is %v, %v", e.State, err)
				}
			})
		}
	}
}

// A lock that is not given in time rolls back its statement alone, and a handler that ignores that commits the others. With
// innodb_rollback_on_timeout, which no connection can set, the transaction has ended, as in TestTransactionEndsEarly.
func TestLockTimeoutIsIgnored(t *testing.T) {
	t.Parallel()
	d := dbtest.MySQL(t)
	j, db := modes["transactional"](d, t, dbtest.Param("innodb_lock_wait_timeout", "1")), withEffects(t, d)
	mustExec(t, db, "create table locks (id int primary key, n int) engine = InnoDB")
	mustExec(t, db, "insert into locks values (1, 0)")
	holder, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }()
	if _, err := holder.Exec("update locks set n = 1"); err != nil {
		t.Fatal(err)
	}
	run := begin(t, j, newRun(time.Hour))
	_, ctx := protected(j, run, "response")
	err = j.InTx(ctx, nil, func(tx *sql.Tx) error {
		if _, err := tx.Exec("update locks set n = 2"); err == nil || !strings.Contains(err.Error(), "1205") {
			t.Errorf("got %v, want a timeout", err)
		}
		return take(tx, run)
	})
	if err != nil {
		t.Errorf("InTx: %v", err)
	}
	mustHaveEffects(t, db, run, 1)
	mustLook(t, j, run.Key, journal.Done, "response")
}

// Around's transaction is not the journal's. Expected: what complete gets outside of a transaction is not committed alone,
// and after complete has failed, a COMMIT commits nothing, as in PostgreSQL.
//
// fault: MySQL: complete outside of a transaction; COMMIT although complete has failed
func TestAroundEndsEarly(t *testing.T) {
	t.Parallel()
	for mode, open := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			j, db := open(d, t), withEffects(t, d)
			run := begin(t, j, newRun(time.Hour))
			x, ctx := protected(j, run, "response")
			err := j.Around(ctx, func(complete func(sqljournal.Execer) error) error { return complete(db) })
			mustFail(t, "without a transaction", err, journal.ErrAnswered)
			if !x.unknown {
				t.Error("it is said to be known what happened")
			}
			if e, err := j.Look(t.Context(), run.Key); err != nil || e.State == journal.Done {
				t.Errorf("got %v, %v", e.State, err)
			}

			run = begin(t, j, newRun(time.Hour))
			_, ctx = protected(j, run, "response")
			if run.Intent {
				mustExec(t, db, "delete from onceguard_journal")
			}
			othersDone.put(t, d, db, run)
			err = j.Around(ctx, func(complete func(sqljournal.Execer) error) error {
				tx, err := db.Begin()
				if err != nil {
					return err
				}
				if err := take(tx, run); err != nil {
					return err
				}
				mustFail(t, "complete", complete(tx), sqljournal.ErrLost)
				return tx.Commit()
			})
			mustFail(t, "with an error of complete that it ignores", err, journal.ErrAnswered)
			mustHaveEffects(t, db, run, 0)
		})
	}
}

// A look reads what is committed now, also while its caller has a transaction that reads from an older snapshot, and no
// transaction waits for the journal's look.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	for _, level := range isolations {
		t.Run(fmt.Sprint(level), func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			j, db := modes["transactional"](d, t), withEffects(t, d)
			run := begin(t, j, newRun(time.Hour))
			x, ctx := protected(j, run, "the loser's")
			err := j.InTx(ctx, &sql.TxOptions{Isolation: level}, func(tx *sql.Tx) error {
				var n int
				if err := tx.QueryRow("select count(*) from onceguard_journal j where j.key = '" + run.Key + "'").Scan(&n); err != nil || n != 0 {
					t.Errorf("%d rows, %v", n, err)
				}
				if level != sql.LevelSerializable { // where the SELECT keeps others from inserting
					othersDone.put(t, d, db, run)
				}
				return take(tx, run)
			})
			if level == sql.LevelSerializable {
				if err != nil {
					t.Errorf("InTx: %v", err)
				}
				return
			}
			mustFail(t, "InTx", err, journal.ErrAnswered)
			if string(x.answer) != "stored" {
				t.Errorf("the answer is %q, want the other's", x.answer)
			}
			mustHaveEffects(t, db, run, 0)
		})
	}
}

// What a DSN may say makes no difference.
func TestDSN(t *testing.T) {
	t.Parallel()
	for _, params := range []map[string]string{
		{"interpolateParams": "true"},
		{"clientFoundRows": "true"},
		{"multiStatements": "true"},
		{"parseTime": "true", "loc": "Europe/Berlin", "time_zone": "'+05:30'"},
		{"charset": "latin1"},
		{"collation": "utf8mb4_general_ci"},
		{"sql_mode": "'ANSI'"},
		{"sql_mode": "'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'", "interpolateParams": "true"},
		{"interpolateParams": "true", "clientFoundRows": "true", "multiStatements": "true", "columnsWithAlias": "true"},
	} {
		var opts []dbtest.Setting
		for name, value := range params {
			opts = append(opts, dbtest.Param(name, value))
		}
		t.Run(fmt.Sprint(params), func(t *testing.T) {
			t.Parallel()
			for mode := range modes {
				d := dbtest.MySQL(t)
				testStates(t, dbtest.MySQL(t), mode, opts...)
				j, db := modes[mode](d, t, opts...), withEffects(t, d)
				run := begin(t, j, newRun(time.Hour))
				record := "\x00\xff'\"\\é\n%_" // each byte must come back
				_, ctx := protected(j, run, record)
				for range 2 {
					if err := j.Note(ctx, []byte(record)); mode == "intent" && err != nil {
						t.Errorf("Note: %v", err)
					}
				}
				if err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err != nil {
					t.Errorf("InTx: %v", err)
				}
				mustLook(t, j, run.Key, journal.Done, record)
				e, err := j.FindEntry(t.Context(), run, true)
				mustBe(t, "the outcome", e, err, journal.Done, record)
				if mode == "intent" {
					swept := unfinishedRows(t, d, db, 1)[0]
					n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
						return u.Done(ctx, db, time.Hour, []byte(record))
					})
					if n != 1 || err != nil {
						t.Errorf("Sweep: %d, %v", n, err)
					}
					mustLook(t, j, swept.Key, journal.Done, record)
				}
			}
		})
	}
}

// The limits of the columns and of a packet. Expected: an error, and nothing is cut or stored.
func TestTooLongForMySQL(t *testing.T) {
	t.Parallel()
	d := dbtest.MySQL(t)
	db := withEffects(t, d)
	mustPanic(t, "sqljournal.Transactional: namespace is longer than 600 bytes", func() {
		sqljournal.Transactional(db, strings.Repeat("n", 601), sqljournal.MySQL())
	})
	j := sqljournal.Transactional(d.Open(t, dbtest.Param("maxAllowedPacket", "0")), strings.Repeat("n", 600), sqljournal.MySQL())
	run := newRun(time.Hour)
	run.Key = strings.Repeat("n", 600) + strings.TrimPrefix(run.Key, namespace)
	begin(t, j, run)
	for size, want := range map[int]bool{1<<20 + 1000: true, 65 << 20: false} {
		_, ctx := protected(j, run, strings.Repeat("r", size))
		err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) })
		if (err == nil) != want {
			t.Errorf("a record of %d bytes: %v", size, err)
		}
		if want {
			mustHaveEffects(t, db, run, 1)
			run = begin(t, j, retriedAs(run))
		}
	}
	mustHaveEffects(t, db, run, 0)
}

// retriedAs returns a run under another key of the same namespace.
func retriedAs(run journal.Run) journal.Run {
	other := newRun(time.Hour)
	other.Key = strings.Split(run.Key, ":{")[0] + strings.TrimPrefix(other.Key, namespace)
	return other
}

// fault: MySQL: the probe's connection has a limit for locks, and nobody else gets that connection
func TestProbeLeavesNoSetting(t *testing.T) {
	t.Parallel()
	d := dbtest.MySQL(t)
	db := d.Open(t, dbtest.Param("innodb_lock_wait_timeout", "77"))
	db.SetMaxOpenConns(1)
	j := sqljournal.Intent(db, namespace, sqljournal.MySQL())
	run := begin(t, j, newRun(time.Hour))
	e, err := j.FindEntry(t.Context(), run, true)
	mustBe(t, "the outcome", e, err, begun, "")
	var limit int
	if err := db.QueryRow("select @@innodb_lock_wait_timeout").Scan(&limit); err != nil || limit != 77 {
		t.Errorf("a connection's limit is %d s, %v, want 77 s", limit, err)
	}
}

// Sweep, Expire and the probe lock no gaps between rows, into which others insert, whatever the default isolation is.
//
// fault: MySQL: an INSERT while Sweep, Expire or the probe has its transaction open
func TestOwnTransactionsLeaveGaps(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]struct {
		last dbtest.Match // its last statement
		run  func(t *testing.T, j *sqljournal.Journal, key journal.Run) error
	}{
		"Sweep": {dbtest.Statement("update onceguard_journal set run"), func(t *testing.T, j *sqljournal.Journal, _ journal.Run) error {
			_, err := j.Sweep(t.Context(), 0, time.Hour, func(context.Context, sqljournal.Unfinished) error { return nil })
			return err
		}},
		"Expire": {dbtest.Statement("delete from onceguard_journal where key in"), func(t *testing.T, j *sqljournal.Journal, _ journal.Run) error {
			_, err := j.Expire(t.Context())
			return err
		}},
		"probe": {dbtest.Statement("select key"), func(t *testing.T, j *sqljournal.Journal, run journal.Run) error {
			_, err := j.FindEntry(t.Context(), run, true)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			proxy, db := dbtest.NewProxy(t, d.Server()), d.Open(t)
			j := modes["intent"](d, t, dbtest.Through(proxy), d.Isolation(t, "repeatable read"))
			run := unfinishedRows(t, d, db, 1)[0]
			othersExpired.put(t, d, db, newRun(time.Hour))
			held := proxy.HoldRequest(own.last)
			ended := make(chan error, 1)
			go func() { ended <- own.run(t, j, run) }()
			held.Wait(t)
			beside := modes["intent"](d, t, dbtest.Param("innodb_lock_wait_timeout", "1"))
			for range 20 {
				begin(t, beside, newRun(time.Hour))
			}
			held.Lift()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// The numbers of errors are found however they are wrapped, and in no text.
func TestErrorNumbers(t *testing.T) {
	t.Parallel()
	deadlock := &mysql.MySQLError{Number: 1213, SQLState: [5]byte{'4', '0', '0', '0', '1'}, Message: "Deadlock found"}
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{deadlock, 1213},
		{&mysql.MySQLError{Number: 1062, Message: "Duplicate entry 'Error 1213'"}, 1062},
		{fmt.Errorf("insert: %w", deadlock), 1213},
		{errors.Join(errors.New("Error 12"), fmt.Errorf("a: %w, b: %w", context.Canceled, deadlock)), 1213},
		{errors.New("Error 1213 (40001): Deadlock found"), 0},
		{errors.Join(context.Canceled, deadlock), 1213},
		{errors.New("order Error 1213"), 0},
		{fmt.Errorf("Error 1213: %w", context.Canceled), 0},
	} {
		if got := sqljournal.MySQLNumber(test.err); got != test.want {
			t.Errorf("%v: got %d, want %d", test.err, got, test.want)
		}
	}
}
