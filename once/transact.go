package once

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
)

// errNoValue is the error of a journal's transaction whose commit would not know the value of the function.
var errNoValue = errors.New("once: this transaction cannot store the value of a Do. Nothing has happened. Instead of once.Do " +
	"with InTx or Around call the function of the journal that does both, such as sqljournal.Do")

// Transact is [journal.Transact] for the function of a [Do]. seal takes the value that the function is going to return, and
// encodes it. It is for packages that implement a journal; their users call a function such as sqljournal.Do.
//
// In addition to the errors of seal there, seal returns [journal.ErrTooLong] for a value that is longer than 1 MiB, and an
// error for one that cannot be encoded. The function must return the last sealed value if Transact returns nil.
//
// It panics if ctx does not belong to a run of a Guard with a journal.
func Transact(
	ctx context.Context,
	do func(seal func(v any) (journal.Commit, error)) error,
	findEntry func(run journal.Run, sealed bool) (journal.Entry, error),
) error {
	e := FromContext(ctx)
	if e == nil {
		panic("once.Transact: the context belongs to no run")
	}
	e.product.inTransact.Store(true)
	defer e.product.inTransact.Store(false)
	return journal.Transact(ctx, func(seal func() (journal.Commit, error)) error {
		return do(func(v any) (journal.Commit, error) {
			if err := e.product.encode(v, nil); err != nil {
				return journal.Commit{}, err
			}
			return seal()
		})
	}, findEntry)
}

// The methods of [run.TxProduct]. The product is one value, so there is nothing to set aside, rewind or refuse.

func (p *product) BeginTx() error {
	if !p.inTransact.Load() {
		return errNoValue
	}
	return nil
}

func (p *product) Seal(store func(head, body []byte)) error {
	store(p.form[:], p.body)
	return nil
}

func (p *product) Changed() bool { return false }

// NeedsNoTx reports whether the function has returned an error: sqljournal.Do has rolled its transaction back.
func (p *product) NeedsNoTx() bool { return p.form[0] == record.FormError }
func (p *product) Committed()      {}
func (p *product) Rewind()         {}
func (p *product) Freeze()         {}
