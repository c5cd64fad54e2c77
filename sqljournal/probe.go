package sqljournal

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/onceguard/onceguard/journal"
)

const (
	probeTime  = 3 * time.Second       // default of table.probeTime
	probePause = 50 * time.Millisecond // between two tries
)

// findEntry returns the entry of a run's key after its transaction has failed. An error means that it is not known
// whether the transaction was committed.
//
// commitSent is true if a COMMIT may have been sent. If not, this run has committed nothing, and one look finds what
// others have committed. If the look fails, findEntry returns the entry from when the run began, so that the handler
// may try again.
func (j *Journal) findEntry(ctx context.Context, run journal.Run, commitSent bool) (journal.Entry, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.probeTime)
	defer cancel()
	if commitSent {
		return j.probe(ctx, run)
	}
	e, err := j.look(ctx, run.Key, run.Token)
	switch {
	case err == nil:
		return e, nil
	case run.Intent:
		return journal.Entry{State: journal.Begun, Token: run.Token, Note: run.Note}, nil
	}
	return journal.Entry{}, nil
}

// probe waits until no open transaction can change the row of run, and returns the entry. It tries again after any
// error, because the database may be restarting, until ctx is done.
func (t *table) probe(ctx context.Context, run journal.Run) (journal.Entry, error) {
	stale := t.db.Stats().Idle // at most: connections from before a restart
	for {
		e, known, err := t.tryProbe(ctx, run)
		if known {
			return e, nil
		}
		if errors.Is(err, driver.ErrBadConn) && stale > 0 {
			stale--
			continue
		}
		pause := time.NewTimer(probePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if err == nil {
				err = ctx.Err()
			}
			return journal.Entry{}, err
		}
	}
}

// tryProbe returns known false, without an error, if the row was removed between its statements.
//
// A SELECT alone would not do. The server may still execute a COMMIT that arrives late, or whose connection is broken.
// Until then the transaction has its locks: an INSERT of the same key waits for its INSERT, and FOR UPDATE for its
// UPDATE.
func (t *table) tryProbe(ctx context.Context, run journal.Run) (e journal.Entry, known bool, err error) {
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return e, false, err
	}
	defer conn.Close()
	if t.dialect.probeLimit != "" {
		defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }() // closes it: nobody else shall have the limit
		if _, err := conn.ExecContext(ctx, t.dialect.probeLimit); err != nil {
			return e, false, err
		}
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: t.dialect.readCommitted})
	if err != nil {
		return e, false, err
	}
	defer rollBack(tx)
	if err := t.dialect.open(ctx, tx); err != nil {
		return e, false, err
	}
	if t.dialect.probe != "" {
		n, err := t.dialect.exec(ctx, tx, t.dialect.probe, run.Key, run.Token)
		if err != nil && !isDuplicate(err) {
			return e, false, err
		}
		if n == 1 { // the row is the probe's own: the key had none
			return e, true, nil
		}
	}
	var r row
	rows, err := t.dialect.query(ctx, tx, t.dialect.probeFound, run.Key)
	found, err := scanRow(rows, err, r.columns()...)
	if err != nil {
		return e, false, err
	}
	if !found {
		wasLocked := t.dialect.probe == "" // by opening: the row cannot have been removed in between
		return e, wasLocked, nil
	}
	if r.expired() && r.owner.String == run.Token { // the run's own row is its outcome although it has expired
		return journal.Entry{State: journal.Done, Token: run.Token, Record: r.record}, true, nil
	}
	e, err = r.entry(t.dialect.unit, run.Token)
	return e, err == nil, err
}
