package lock

import (
	"context"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// NewContext returns a context that carries lease, for re-entry: TryAcquire and Acquire with that context, or one
// derived from it, join the lease if they are for the same key and the same Locker. They join only while the
// lease is valid and this handle is not released. Without NewContext nothing is ever joined.
//
// Each join returns a new handle, with its own Context. The Release of the last handle frees the key. Settle and
// Abandon of any handle act on the lease that they share.
func NewContext(ctx context.Context, lease *Lease) context.Context {
	return context.WithValue(ctx, joinKey{lease.store, lease.core.ID().Key.Text}, lease)
}

// joinKey is the key of a lease in a context.
type joinKey struct {
	store *store.Store // of its Locker
	key   string
}

// join returns a new handle on the lease that ctx carries for key, and nil if ctx carries none that can be joined.
func join(ctx context.Context, s *store.Store, key store.Key) *Lease {
	lease, ok := ctx.Value(joinKey{s, key.Text}).(*Lease)
	if !ok {
		return nil
	}
	joined := &Lease{store: s, core: lease.core, fence: lease.fence}
	if !lease.handle.Join(background.WithoutEnd(ctx), &joined.handle) {
		return nil
	}
	return joined
}
