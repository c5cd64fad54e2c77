package sqljournal

import (
	"context"
	"database/sql"
	"fmt"
)

// Expire removes the expired rows of the journal's namespace, and returns how many. Call it every few minutes: without
// it nothing fails, but the table grows. Each of its transactions removes at most 1000 rows. It skips rows that others
// have locked. Any number of processes may call it at once. After an error of the database it returns how many it has
// removed before.
func (j *Journal) Expire(ctx context.Context) (int64, error) {
	var removed int64
	conflicts := 0
	for {
		n, err := j.tryExpire(ctx)
		switch {
		case err == nil:
			removed += n
			if n < expireBatch {
				return removed, nil
			}
		case !isConflict(err) || conflicts == tries:
			return removed, fmt.Errorf("sqljournal: expire: %w", err)
		default:
			conflicts++
		}
	}
}

// tryExpire removes up to expireBatch rows.
func (j *Journal) tryExpire(ctx context.Context) (n int64, err error) {
	if j.dialect.expireTake == nil {
		return j.dialect.exec(ctx, j.db, j.dialect.expire, j.keyPrefix())
	}
	err = j.ownTransaction(ctx, func(tx *sql.Tx) error {
		rows, err := j.dialect.query(ctx, tx, j.dialect.expire, j.keyPrefix())
		keys, err := scanTexts(rows, err)
		if err != nil || len(keys) == 0 {
			return err
		}
		statement, args := j.dialect.expireTake(keys)
		n = int64(len(keys)) // the rows are locked
		_, err = tx.ExecContext(ctx, statement, args...)
		return err
	})
	return n, err
}
