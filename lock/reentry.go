package lock

import (
	"context"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// NewContext returns a context that carries lease: TryAcquire and Acquire with it, or with one made from it, on the
// same key and the same Locker or Quorum, join the lease instead of waiting for it, for as long as it lasts. Nothing is
// ever joined without it, nor by a handle that is released, though others of its lease may not be.
//
// Every join is a handle of its own, with its own Context; whichever Release comes last frees the key. Settle and
// Abandon of any handle are those of the lease.
func NewContext(ctx context.Context, lease *Lease) context.Context {
	return context.WithValue(ctx, joinKey{lease.owner, lease.core.ID().Key.Text}, lease)
}

// joinKey is what a lease is found by in a context.
type joinKey struct {
	owner *core
	key   string
}

// join returns a new handle on the lease that ctx carries for the key, nil if there is none.
func (c *core) join(ctx context.Context, key store.Key) *Lease {
	lease, ok := ctx.Value(joinKey{c, key.Text}).(*Lease)
	if !ok {
		return nil
	}
	joined := &Lease{owner: c, core: lease.core, fence: lease.fence}
	if !lease.handle.Join(background.WithoutEnd(ctx), &joined.handle) {
		return nil
	}
	return joined
}
