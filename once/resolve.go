package once

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/internal/run"
)

// ErrResolution means that an error for [Guard.Resolve] is not marked [Final] or [NothingHappened], or that its value
// cannot be stored. Nothing was changed.
var ErrResolution = errors.New("once: this cannot be the result of a run")

// ErrJournaled means that the run has a journal, and that the Guard has none. Nothing was changed.
var ErrJournaled = run.ErrJournaled

// Resolve ends a run whose outcome is unknown ([ErrOutcomeUnknown]), by what an operator has found out. v and err are
// what the function would have returned: a value of the same type, or an error that is marked [Final] or
// [NothingHappened]. Later calls get v or the error as they would get the run's own, for [WithRetention]'s time. After
// NothingHappened the next call runs. Resolve cannot check what it is told, and a wrong NothingHappened lets the effect
// happen twice.
//
// storageKey is [Refused].Key, or any other form that lock.Locker.Inspect takes. token is the lock.Info.Token that the
// operator has seen. Resolve changes the key only if it still holds the abandoned claim with this token. The Input's
// fingerprint is kept. Resolve calls no observer. It may be called concurrently.
//
// After these errors nothing was changed: lock.ErrChanged, if the key holds something else by now; lock.ErrLive, if the
// run may still be at work; [ErrResolution]; lock.ErrNotStorageKey; lock.ErrForeign; [ErrUnreadable], if g does not
// have the keys of the run's Guard, or if the run is an HTTP request's; [ErrJournaled]. After any other error inspect
// the key again.
func (g *Guard) Resolve(ctx context.Context, storageKey, token string, v any, err error) error {
	switch knows := knowledgeOf(err); {
	case knows == nothingHappened:
		return g.engine.Resolve(ctx, storageKey, token, nil)
	case err != nil && knows != final:
		return fmt.Errorf("%w: the error is marked neither Final nor NothingHappened", ErrResolution)
	}
	p := &product{Guard: g}
	if failed := p.encode(v, err); failed != nil {
		return fmt.Errorf("%w: %w", ErrResolution, failed)
	}
	return g.engine.Resolve(ctx, storageKey, token, &[2][]byte{p.form[:], p.body})
}
