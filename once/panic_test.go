package once_test

import (
	"context"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/once"
)

// A panic after the value is sealed: whether the transaction commits is not known, but how the run ended is.
func TestPanicInATransaction(t *testing.T) {
	modes(t, func(t *testing.T, b redistest.Backend, j *memJournal) {
		d := open(t, b, once.WithJournal(j))
		func() {
			defer func() { _ = recover() }()
			d.do(func(ctx context.Context) (receipt, error) {
				_ = once.Transact(ctx, func(seal func(any) (journal.Commit, error)) error {
					if _, err := seal(receipt{Number: 1}); err != nil {
						t.Error(err)
					}
					panic("out of order")
				}, nil)
				return receipt{}, nil
			})
		}()
		d.event(once.Panicked)
	})
}
