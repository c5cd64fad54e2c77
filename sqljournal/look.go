package sqljournal

import (
	"context"
	"fmt"

	"github.com/onceguard/onceguard/journal"
)

// Look returns the entry of key. It is one read-only statement, which it may share with other looks of this Journal at
// the same time.
func (j *Journal) Look(ctx context.Context, key string) (journal.Entry, error) {
	e, err := j.look(ctx, key, "")
	if err != nil {
		return journal.Entry{}, fmt.Errorf("sqljournal: look: %w", err)
	}
	return e, nil
}

// look returns the entry of key for the run with that token. No run has an empty token.
func (j *Journal) look(ctx context.Context, key, token string) (journal.Entry, error) {
	r, err := j.lookRow(ctx, key)
	if err != nil {
		return journal.Entry{}, err
	}
	return r.entry(j.dialect.unit, token)
}

// lookRow returns the row of key, alone or together with other looks.
func (j *Journal) lookRow(ctx context.Context, key string) (row, error) {
	if j.dialect.lookMany == "" {
		return j.lookOne(ctx, key)
	}
	return j.batcher.look(ctx, key, j.lookOne, j.lookMany)
}

func (j *Journal) lookOne(ctx context.Context, key string) (r row, err error) {
	rows, err := j.dialect.query(ctx, j.db, j.dialect.look, key)
	_, err = scanRow(rows, err, r.columns()...)
	return r, err
}

// lookMany returns the existing rows of keys, by their key.
func (j *Journal) lookMany(ctx context.Context, keys []string) (map[string]row, error) {
	rows, err := j.dialect.query(ctx, j.db, j.dialect.lookMany, arrayOf(keys))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[string]row, len(keys))
	for rows.Next() {
		var r row
		if err := rows.Scan(r.columns()...); err != nil {
			return nil, err
		}
		found[r.key.String] = r
	}
	return found, rows.Err()
}
