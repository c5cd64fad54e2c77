package once

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
)

var (
	errTooLong       = fmt.Errorf("once: the value is longer than 1 MiB: %w", journal.ErrTooLong)
	errUnknownForm   = errors.New("it is neither a value nor an error, or of a newer version")
	errCodecPanicked = errors.New("once: the codec panicked, or called runtime.Goexit")
	errRefusedInside = errors.New("once: the function has returned the refusal of an inner Do, which a later call may not get")
)

// product is what a function has returned, as a [run.TxProduct].
type product struct {
	*Guard
	form [1]byte
	body []byte // the encoded value, or the text of the error

	inTransact atomic.Bool // a transaction that begins knows the value: see Transact
}

// take encodes what the function has returned, and returns how its run has ended.
func (p *product) take(v any, err error) run.Ending {
	if failed := p.encode(v, err); failed != nil {
		return run.Ending{How: run.Partial, Err: failed}
	}
	m := outermost(err)
	if m.knows == noMark && errors.Is(err, errRetryable) { // stored, it would be the result for the whole retention
		return run.Ending{How: run.Refused, Err: errRefusedInside}
	}
	return run.Ending{How: run.Whole, Err: foreignOf(m.err)}
}

// encode sets form and body. It fails if the value cannot be stored.
func (p *product) encode(v any, err error) error {
	if err != nil {
		text := err.Error()
		p.form[0], p.body = record.FormError, []byte(text[:min(len(text), record.MaxResult)])
		return nil
	}
	encoded, err := p.marshal(v)
	switch {
	case err != nil:
		return fmt.Errorf("once: the value cannot be encoded: %w", codecError(reflect.TypeOf(v), err))
	case len(encoded) > record.MaxResult:
		return errTooLong
	}
	p.form[0], p.body = record.FormValue, encoded
	return nil
}

// decode stores the value of the payload in v, which is a pointer, or returns its error as a *StoredError. Any other
// error is ErrUnreadable.
func (g *Guard) decode(payload []byte, v any) error {
	switch {
	case len(payload) > 0 && payload[0] == record.FormValue:
		if err := g.unmarshal(payload[1:], v); err != nil {
			return fmt.Errorf("%w: the value: %w", ErrUnreadable, codecError(reflect.TypeOf(v).Elem(), err))
		}
		return nil
	case len(payload) > 0 && payload[0] == record.FormError:
		return &StoredError{string(payload[1:])}
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, errUnknownForm)
}

// codecError returns why a codec has failed with err for a value of this type. It names types only: the text of err may
// quote the value, which is then in logs and traces, and a mark in err would be f's.
func codecError(of reflect.Type, err error) error { return fmt.Errorf("type %v: %T", of, err) }

func (p *product) Payload() (head, body []byte, ok bool) { return p.form[:], p.body, true }

func (p *product) Tombstone(bool) []byte { return nil }

// Stores reports whether a result without a mark is stored.
func (p *product) Stores(strict bool) bool { return strict || p.form[0] == record.FormValue }

func (p *product) Abort() {}

func (p *product) Sent() bool { return false }

func (p *product) String() string {
	if p.form[0] == record.FormError {
		return "returned an error"
	}
	return "returned a value"
}
