package sqljournal

import (
	"context"
	"fmt"
)

// Expire removes the rows whose time is over, and returns how many. Call it every few minutes; without it nothing fails,
// but the table grows. It removes 1000 rows at a time, each thousand in a transaction of its own, and passes over rows
// that others have locked. Any number of processes may call it at once. If it fails, the number is of those that were
// removed before.
func (j *Journal) Expire(ctx context.Context) (int64, error) {
	var removed int64
	conflicts := 0
	for {
		n, err := changed(j.db.ExecContext(ctx, j.dialect.expire))
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
