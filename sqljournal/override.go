package sqljournal

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// overrideTime is how long an override may act, once it has read the database's time.
const overrideTime = 5 * time.Second

// overrideUntil returns the time until which an override that begins now may act, by the database's clock. An override is
// what an operator does to a row: Forget, or End with Run.Resolved.
//
// A statement without a reply may lie in the buffer of a broken connection, and reach the database long after the operator
// was told that it has failed. So an override first reads the database's time, and then the row. What it must not change it
// refuses there, before anything is sent that could change it. The statement that changes the row carries the time until
// which it may act. (The clock of a server that takes over from that one must not be far behind.)
func (t *table) overrideUntil(ctx context.Context) (until int64, err error) {
	rows, err := t.dialect.query(ctx, t.db, t.dialect.now)
	_, err = scanRow(rows, err, &until)
	return until + t.dialect.units(t.overrideTime), err
}

// tryForget reads the row, and removes it if it is as the operator has seen it.
func (t *table) tryForget(ctx context.Context, key, token string, evenIfLive bool) error {
	until, err := t.overrideUntil(ctx)
	if err != nil {
		return err
	}
	seen, err := t.info(ctx, key)
	state := stateBegun
	if seen.State == journal.Done {
		state = stateDone
	}
	switch {
	case err != nil || seen.State == journal.Absent:
		return err
	case seen.Token != token:
		return fmt.Errorf("%w, or it has another state now", ErrLost)
	case state == stateBegun && seen.Left >= 0 && !evenIfLive:
		return ErrRunning
	}
	n, err := t.dialect.exec(ctx, t.db, t.dialect.forget, key, seen.Run, state, !seen.response, evenIfLive, until)
	return oneOrContended(n, err)
}

// tryResolve is tryEnd for an operator.
func (t *table) tryResolve(ctx context.Context, run journal.Run, record []byte, keep time.Duration) (
	journal.Entry, error,
) {
	until, err := t.overrideUntil(ctx)
	if err != nil {
		return journal.Entry{}, err
	}
	e, err := t.look(ctx, run.Key, run.Token)
	if err != nil {
		return e, err
	}
	isOwn := e.Token == run.Token
	hasNoOutcome := isOwn && (e.State == journal.Begun || e.State == journal.Unfinished)
	isUnanswered := isOwn && e.State == journal.Done && e.Record == nil
	outcome := journal.Entry{State: journal.Done, Token: run.Token, Record: record, Left: keep}
	var n int64
	switch {
	case hasNoOutcome && record == nil:
		outcome = journal.Entry{}
		n, err = t.dialect.exec(ctx, t.db, t.dialect.freeRun, run.Key, run.Token, until)
	case record != nil && (hasNoOutcome || isUnanswered):
		n, err = t.dialect.exec(ctx, t.db, t.dialect.fill, run.Key, run.Token, record, t.dialect.units(keep), until)
	case record != nil && e.State == journal.Absent && !run.Intent:
		if err = t.removeExpired(ctx, run.Key); err == nil {
			n, err = t.dialect.exec(ctx, t.db, t.dialect.insertRun, run.Key, run.Token, record, t.dialect.units(keep), until)
		}
		if isDuplicate(err) {
			err = errContended
		}
	default:
		return e, nil
	}
	return outcome, oneOrContended(n, err)
}
