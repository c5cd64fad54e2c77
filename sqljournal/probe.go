package sqljournal

import (
	"context"
	"database/sql"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

const (
	probeTime  = 3 * time.Second       // how long it is tried to find out what has become of a transaction
	probePause = 50 * time.Millisecond // between two tries
)

// truth answers what stands under a run's key after its transaction has failed. Its error means that it is not known
// whether the transaction was committed.
//
// sent says that a COMMIT may have been sent. If none was, nothing of this run is committed, and one look tells what others
// have done. If that fails, truth answers what stood when the run began: the caller may try again.
func (j *Journal) truth(ctx context.Context, run middleware.JournalRun, sent bool) (middleware.JournalEntry, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	if sent {
		return j.probe(ctx, run)
	}
	e, err := j.look(ctx, run.Key, run.Token)
	switch {
	case err == nil:
		return e, nil
	case run.Intent:
		return middleware.JournalEntry{State: middleware.Begun, Token: run.Token, Note: run.Note}, nil
	}
	return middleware.JournalEntry{}, nil
}

// probe waits until no transaction that could change the row of a run is open, and answers what stands then. It is tried
// again after any error, until ctx is done: the database may be restarting.
func (j *Journal) probe(ctx context.Context, run middleware.JournalRun) (middleware.JournalEntry, error) {
	for {
		e, known, err := j.tryProbe(ctx, run)
		if known {
			return e, nil
		}
		pause := time.NewTimer(probePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if err == nil {
				err = ctx.Err()
			}
			return middleware.JournalEntry{}, err
		}
	}
}

// tryProbe reports that the answer is not known, without an error, if the row was removed between its statements.
//
// A SELECT alone would not do. The server may still execute a COMMIT whose connection is gone, or one that arrives late.
// Until then the transaction has its locks: an INSERT of the same key waits for its INSERT, and FOR UPDATE for its UPDATE.
func (j *Journal) tryProbe(ctx context.Context, run middleware.JournalRun) (e middleware.JournalEntry, known bool, err error) {
	tx, err := j.db.BeginTx(ctx, &sql.TxOptions{Isolation: j.dialect.readCommitted})
	if err != nil {
		return e, false, err
	}
	defer rollBack(tx)
	if err := j.takeWriteLock(ctx, tx); err != nil {
		return e, false, err
	}
	waited := j.dialect.probe == "" // the write lock has done so
	if !waited {
		n, err := changed(tx.ExecContext(ctx, j.dialect.probe, run.Key, run.Token))
		if err != nil {
			return e, false, err
		}
		if n == 1 { // the row is the probe's own
			return e, true, nil
		}
	}
	var r row
	rows, err := tx.QueryContext(ctx, j.dialect.probeFound, run.Key)
	found, err := scanRow(rows, err, r.columns()...)
	if err != nil || !found {
		return e, err == nil && waited, err
	}
	if r.state.Int64 == stateDone && r.left.Int64 <= 0 && r.token.String != run.Token {
		return e, true, nil // of another, and expired; its own is the answer even then
	}
	e, err = r.entry(j.dialect.unit, run.Token)
	return e, err == nil, err
}
