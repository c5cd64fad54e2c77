package operate

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/journal"
)

// Journal is a journal with what an operator needs of it.
type Journal interface {
	journal.Journal

	// Row returns the row of a key. It changes nothing.
	Row(ctx context.Context, key string) (Row, error)

	// Rows returns the rows that have no response: without an outcome, or done without a response. With answered it returns
	// those that have one, with the key alone.
	Rows(ctx context.Context, answered bool) ([]Row, error)

	// Remove removes the row that token names. It returns lock.ErrChanged if the row has changed, and lock.ErrLive if the
	// row's time is not over and evenIfLive is false.
	Remove(ctx context.Context, key, token string, evenIfLive bool) error

	Close() error
}

// OpenJournal returns the journal of a namespace in the database at a URL. An error that a user can correct comes from
// [UsageError]. No error has a password.
type OpenJournal func(ctx context.Context, url, namespace string) (Journal, error)

// UsageError returns the error of wrong flags or arguments.
func UsageError(text string) error { return usageError{errors.New(text)} }
