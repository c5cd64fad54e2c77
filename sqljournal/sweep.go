package sqljournal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Unfinished is a run of an intent journal that has passed its limit without an outcome.
type Unfinished struct {
	Key      string    // as it stands in Redis: a hash
	Note     []byte    // what the handler has stored by [Journal.Note]; nil if nothing
	Began    time.Time // by the database's clock
	Attempts int       // how often it was handed out, this time included

	token   string
	dialect *dialect
}

// Sweep hands out the runs that have been unfinished for longer than grace, the oldest first and one after the other, and
// returns how many. Several sweeps may run at once, in any number of processes: a row is handed to one of them. A row that
// an open transaction has changed is left out.
//
// fn finds out what has become of the run, such as by asking the payment provider. Then it calls [Unfinished.Done] if the
// effect is there, so that a retry is told that its response was not stored, or [Unfinished.Free] if it is not, so that a
// retry runs. It has to do so within lease, after which its context ends and the row may be handed out again. The same
// happens to a row that fn returns without Done or Free, with or without an error. A retry gets 409 in the meantime.
//
// Once a row is handed out, its run can no longer complete it: the transaction of a handler that is merely late is rolled
// back. An effect elsewhere cannot be, so grace should be longer than such an effect can be late.
//
// One call hands out each row once. Its error joins those of fn, after which it goes on, and one of the database, after
// which it does not. Grace and lease are rounded up to a microsecond, with [SQLite] to a millisecond.
func (j *Journal) Sweep(ctx context.Context, grace, lease time.Duration, fn func(context.Context, Unfinished) error) (int, error) {
	if lease <= 0 {
		return 0, errors.New("sqljournal: sweep: the lease is not positive")
	}
	var since any // the database's time of the first statement: what was handed out since then has a later limit
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
		if err := u.hand(ctx, lease, fn); err != nil {
			failed = append(failed, err)
		}
	}
}

func (u *Unfinished) hand(ctx context.Context, lease time.Duration, fn func(context.Context, Unfinished) error) error {
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	return fn(ctx, *u)
}

// takeUnfinished takes the oldest row that was unfinished at the database's time since, and returns the time now. It returns
// nil if there is none, and both a row and an error if its note is damaged: without the row, no sweep would get past it.
func (j *Journal) takeUnfinished(ctx context.Context, grace, lease time.Duration, since any) (_ *Unfinished, now int64, _ error) {
	u := Unfinished{token: uuid.NewString(), dialect: j.dialect}
	args := []any{u.token, j.dialect.units(lease), j.dialect.units(max(0, grace)), since}
	var note []byte
	var began int64
	var found bool
	err := errContended
	for try := 0; try == 0 || try < tries && isConflict(err); try++ {
		rows, queryErr := j.db.QueryContext(ctx, j.dialect.sweep, args...)
		found, err = scanRow(rows, queryErr, &u.Key, &note, &began, &u.Attempts, &now)
	}
	if err != nil || !found {
		return nil, now, err
	}
	_, u.Note, err = splitNote(note)
	u.Began = time.Unix(0, began*int64(j.dialect.unit))
	return &u, now, err
}

// Done says that the run took effect. For the time keep, a retry is told that its response was not stored. e may be the
// journal's database, or a transaction in it. The error is [ErrLost] if the lease is over and another sweep has the row.
func (u Unfinished) Done(ctx context.Context, e Execer, keep time.Duration) error {
	n, err := changed(e.ExecContext(ctx, u.dialect.finish, u.Key, u.token, nil, u.dialect.units(keep)))
	return u.ended("done", n, err)
}

// Free says that the run did not take effect: the row is removed and a retry runs. e and the error are as those of Done.
func (u Unfinished) Free(ctx context.Context, e Execer) error {
	n, err := changed(e.ExecContext(ctx, u.dialect.free, u.Key, u.token))
	return u.ended("free", n, err)
}

func (u Unfinished) ended(what string, n int64, err error) error {
	if err == nil && n != 1 {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("sqljournal: %s: %w", what, err)
	}
	return nil
}
