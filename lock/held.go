package lock

import (
	"context"
	"sync"

	"github.com/onceguard/onceguard/internal/background"
)

// held are the leases that Close releases, see WithReleaseOnClose. Without that option it stays empty.
type held struct {
	isOn  bool
	group *background.Group

	mu     sync.Mutex
	leases map[*Lease]struct{} // guarded by mu, like all fields below
	closed bool
}

// add notes that Close has to release lease, until it ends. It returns lease. If Close was called meanwhile, it releases
// the lease and returns ErrClosed. A lease of Claim is not added, not even one that TryAcquire has joined.
func (h *held) add(lease *Lease) (*Lease, error) {
	if !h.isOn || !lease.core.ID().IsLock {
		return lease, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		lease.handle.ReleaseInBackground(h.group.Base())
		return nil, ErrClosed
	}
	h.leases[lease] = struct{}{}
	context.AfterFunc(lease.Context(), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.leases, lease)
	})
	return lease, nil
}

// release releases the leases in the background.
func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for lease := range h.leases {
		h.group.Go(func() { _ = lease.handle.ReleaseHeld(h.group.Base()) }) // what fails is retried, and then ErrUnreleased
	}
}
