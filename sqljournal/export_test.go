package sqljournal

import (
	"context"

	"github.com/onceguard/onceguard/middleware"
)

// Execution is what a Journal needs of a middleware.Execution.
type Execution = execution

// SetExecution lets InTx, Around and Note of j find another run than that of the middleware.
func SetExecution(j *Journal, of func(context.Context) Execution) { j.executionOf = of }

// Complete is what InTx stores last in its transaction.
func (j *Journal) Complete(ctx context.Context, e Execer, c middleware.Commit) error {
	return j.complete(ctx, e, c)
}

// Truth is what InTx asks after a failure.
func (j *Journal) Truth(ctx context.Context, run middleware.JournalRun, sent bool) (middleware.JournalEntry, error) {
	return j.truth(ctx, run, sent)
}

var (
	JoinNote = joinNote
	ArrayOf  = arrayOf
)
