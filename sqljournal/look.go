package sqljournal

import (
	"context"
	"fmt"

	"github.com/onceguard/onceguard/journal"
)

// Look returns the entry of key. It is one read-only statement.
func (j *Journal) Look(ctx context.Context, key string) (journal.Entry, error) {
	e, err := j.look(ctx, key, "")
	if err != nil {
		return journal.Entry{}, fmt.Errorf("sqljournal: look: %w", err)
	}
	return e, nil
}

// look returns the entry of key for the run with that token. No run has an empty token.
func (t *table) look(ctx context.Context, key, token string) (journal.Entry, error) {
	r, err := t.lookRow(ctx, key)
	if err != nil {
		return journal.Entry{}, err
	}
	return r.entry(t.dialect.unit, token)
}
