package once

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
)

// ErrResolution means that an error for [Guard.Resolve] is not marked [Final] or [NothingHappened], that its value
// cannot be stored, that the run is an HTTP request's, that it has its outcome, which Resolve does not replace, or that it
// has a journal and the Guard has none. Nothing was changed.
var ErrResolution = errors.New("once: this cannot be the result of a run")

// Resolve ends a run whose outcome is unknown ([ErrOutcomeUnknown]), with what an operator has found out. v and err are
// what the function would have returned: a value of the same type, or an error that is marked [Final] or
// [NothingHappened]. Later calls get v or the error as they would get the run's own, for [WithRetention]'s time. After
// NothingHappened the next call runs. Resolve cannot check what it is told, and a wrong NothingHappened lets the effect
// happen twice.
//
// storageKey is [Refused].Key, or any other form that lock.Locker.Inspect takes. token is the lock.Info.Token that the
// operator has seen. Resolve changes the key only if it still holds the abandoned claim with this token. The Input's
// fingerprint is kept. Resolve calls no observer. It may be called concurrently.
//
// After these errors nothing was changed: lock.ErrChanged, if the key holds something else; lock.ErrLive, if the run may
// still be at work; [ErrResolution]; lock.ErrNotStorageKey; lock.ErrForeign; [ErrUnreadable], if g does not have the keys
// of the run's Guard. After any other error the run may have
// been resolved, or may still be: in Redis within the time for one operation (lock.WithOpTimeout), in a journal of
// sqljournal within 5 s. Then inspect the key again. NothingHappened frees the key of an HTTP request as well.
func (g *Guard) Resolve(ctx context.Context, storageKey, token string, v any, err error) error {
	left, failed := g.left(v, err)
	if failed != nil {
		return failed
	}
	failed = g.engine.Resolve(ctx, storageKey, token, left)
	if errors.Is(failed, run.ErrRequest) || errors.Is(failed, run.ErrJournaled) || errors.Is(failed, run.ErrSettled) {
		return fmt.Errorf("%w: %w", ErrResolution, failed)
	}
	return unmark(failed)
}

// left returns the payload of a result that an operator or a sweep has found out, or nil if nothing has happened.
func (g *Guard) left(v any, err error) (*run.Left, error) {
	switch knows := knowledgeOf(err); {
	case knows == nothingHappened:
		return nil, nil
	case err != nil && knows != final:
		return nil, fmt.Errorf("%w: the error is marked neither Final nor NothingHappened", ErrResolution)
	}
	p := &product{Guard: g}
	if failed := p.encode(v, err); failed != nil {
		return nil, fmt.Errorf("%w: %w", ErrResolution, failed)
	}
	return &run.Left{Door: record.Value, Head: p.form[:], Body: p.body}, nil
}

// Record returns the result v, or an error that is marked [Final], as g would store it. It is for the function that ends a
// call for which a journal has no outcome, such as that of sqljournal's Sweep: Unfinished.Done stores it in the row with
// the key storageKey, and later calls get it. Record asks neither Redis nor the journal. It may be called concurrently.
//
// storageKey is the key as it stands in Redis, such as Unfinished.Key. The error is lock.ErrNotStorageKey, or
// [ErrResolution] if the error is marked otherwise, or the value cannot be stored.
func (g *Guard) Record(storageKey string, v any, err error) ([]byte, error) {
	left, failed := g.left(v, err)
	switch {
	case failed != nil:
		return nil, failed
	case left == nil:
		return nil, fmt.Errorf("%w: nothing has happened, so there is no result", ErrResolution)
	}
	return g.engine.Record(storageKey, left)
}
