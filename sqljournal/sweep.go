package sqljournal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Unfinished is a run of an intent journal that has no outcome, although its limit has passed.
type Unfinished struct {
	// as it stands in Redis: a hash
	Key string
	// what the handler has stored by [Journal.Note]; nil if nothing
	Note []byte
	// by the database's clock
	Began time.Time
	// how often it was handed out, including this time
	Attempts int

	// of this sweep
	token string
	// what the run's request was
	fingerprint []byte
	dialect     *dialect
}

// Sweep hands out the runs of the journal's namespace that have been unfinished for longer than grace, the oldest first
// and one after the other, and returns how many. Several sweeps may run at once, in any number of processes: each row is handed to one of them.
// Sweep skips a row that an open transaction has changed.
//
// fn finds out what happened, for example from the payment provider. If the run took effect, fn calls
// [Unfinished.Done], with the response that a retry gets. If not, fn calls [Unfinished.Free], and a retry runs. fn has
// to do so within lease. Then its context ends, and the next sweep hands out each row that is neither done nor freed
// again, without another grace, whether or not fn has returned an error. Until a row is done or freed, a retry gets
// 409.
//
// Once a row is handed out, its run can no longer complete it: the transaction of a handler that is merely late is
// rolled back. An effect elsewhere is not, so choose grace longer than such an effect can be late. If fn calls Done
// without a response, and the process of the run still has one, for example because the database was not reachable, a
// retry gets that one as soon as it is stored.
//
// One call hands out each row once. It goes on after an error of fn, and stops after one of the database. Its own error
// joins them. A lease that is not positive is an error. Grace and lease are rounded up to a microsecond, with [SQLite]
// to a millisecond.
func (j *Journal) Sweep(ctx context.Context, grace, lease time.Duration, fn func(context.Context, Unfinished) error) (int, error) {
	if lease <= 0 {
		return 0, errors.New("sqljournal: sweep: the lease is not positive")
	}
	var since any // the database's time of the first statement. A row that was handed out later has a later limit
	var failed []error
	for n := 0; ; n++ {
		u, now, err := j.takeUnfinished(ctx, grace, lease, since)
		if err != nil {
			failed = append(failed, fmt.Errorf("sqljournal: sweep: %w", err))
		}
		if u == nil {
			return n, errors.Join(failed...)
		}
		if since == nil {
			since = now
		}
		if err := u.handOut(ctx, lease, fn); err != nil {
			failed = append(failed, err)
		}
	}
}

func (u *Unfinished) handOut(ctx context.Context, lease time.Duration, fn func(context.Context, Unfinished) error) error {
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	return fn(ctx, *u)
}

// takeUnfinished takes the oldest row that was unfinished at the database's time since, and returns the database's time
// now. It returns nil if there is none. If the note of a row is damaged, it returns the row and an error: without the
// row, no sweep would get past it.
func (j *Journal) takeUnfinished(ctx context.Context, grace, lease time.Duration, since any) (_ *Unfinished, now int64, _ error) {
	u := Unfinished{token: uuid.NewString(), dialect: j.dialect}
	args := []any{u.token, j.dialect.units(lease), j.dialect.units(max(0, grace)), since, j.keyPrefix()}
	var note []byte
	var began int64
	var found bool
	take := func(q queryer) (err error) {
		rows, err := j.dialect.query(ctx, q, j.dialect.sweep, args...)
		found, err = scanRow(rows, err, &u.Key, &note, &began, &u.Attempts, &now)
		return err
	}
	err := again(func() error {
		if j.dialect.sweepTake == "" {
			return take(j.db)
		}
		return j.ownTransaction(ctx, func(tx *sql.Tx) error {
			if err := take(tx); err != nil || !found {
				return err
			}
			_, err := j.dialect.exec(ctx, tx, j.dialect.sweepTake, u.Key, u.token, j.dialect.units(lease))
			return err
		})
	})
	if err != nil || !found {
		return nil, now, err
	}
	if u.fingerprint, u.Note, err = splitNote(note); err != nil {
		u.fingerprint = []byte{0} // no door can read it: without any, every request under the key would be the run's
	}
	u.Began = time.Unix(0, began*int64(j.dialect.unit))
	return &u, now, err
}

// Done records that the run took effect. For the time keep, a retry gets the response in record, which
// middleware.Middleware.Record or once.Guard.Record has made for u.Key. If record is nil, a retry is told that the
// response was not stored. In both cases a request that differs from the run's is refused. e may be the journal's
// database, or a transaction in it. The error is [ErrLost] if the lease has passed and another sweep has the row, or if
// an operator has resolved it. In MySQL it is also an error, and Done does nothing, if e is a *[sql.Tx] that a deadlock or
// DDL has ended, or one without autocommit that [Journal.InTx] has not begun. Done refuses a keep that is not positive: a
// retry would run at once.
func (u Unfinished) Done(ctx context.Context, e Execer, keep time.Duration, record []byte) error {
	if keep <= 0 {
		return errors.New("sqljournal: done: the time to keep it is not positive")
	}
	return u.end(ctx, e, "done", u.dialect.finishSwept, u.Key, u.token, bytesOf(record), u.dialect.units(keep), bytesOf(u.fingerprint))
}

// Free removes the row of a run that did not take effect, so that a retry runs. e and the error are as for Done.
func (u Unfinished) Free(ctx context.Context, e Execer) error {
	return u.end(ctx, e, "free", u.dialect.free, u.Key, u.token)
}

func (u Unfinished) end(ctx context.Context, e Execer, operation, statement string, args ...any) (err error) {
	var n int64
	if err = u.dialect.checkTx(ctx, e); err == nil {
		n, err = u.dialect.exec(ctx, e, statement, args...)
	}
	return expectOneRow(operation, n, err)
}
