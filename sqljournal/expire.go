package sqljournal

import (
	"context"
	"fmt"
)

// Expire removes the expired rows of the journal's namespace, and returns how many. Call it every few minutes: without
// it nothing fails, but the table grows. Each of its transactions removes at most 1000 rows. It skips rows that others
// have locked. Any number of processes may call it at once. If it fails, it returns how many it has removed before.
func (j *Journal) Expire(ctx context.Context) (int64, error) {
	var removed int64
	conflicts := 0
	for {
		n, err := changed(j.db.ExecContext(ctx, j.dialect.expire, j.keyPrefix()))
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
