package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// held are the leases that Close releases, see WithReleaseOnClose. Without that option it stays empty.
type held struct {
	mu     sync.Mutex
	leases map[*Lease]struct{} // guarded by mu, like all fields below
	closed bool

	failed int   // releases since the last call of takeFailed
	err    error // of the last one that has failed
}

// keep notes that Close has to release lease, until it ends. It returns lease. If Close was called meanwhile, it releases
// the lease and returns ErrClosed. A lease of Claim is not kept, also if TryAcquire or Acquire has joined it.
func (l *Locker) keep(lease *Lease) (*Lease, error) {
	if !l.options.releaseOnClose || !lease.core.ID().IsLock {
		return lease, nil
	}
	h := &l.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		lease.ReleaseInBackground(l.group.Base())
		return nil, ErrClosed
	}
	if h.leases == nil {
		h.leases = map[*Lease]struct{}{}
	}
	h.leases[lease] = struct{}{}
	context.AfterFunc(lease.Context(), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.leases, lease)
	})
	return lease, nil
}

// releaseHeld releases the leases in the background.
func (l *Locker) releaseHeld() {
	h := &l.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for lease := range h.leases {
		l.group.Go(func() {
			err := lease.handle.ReleaseHeld(l.group.Base())
			if err == nil || errors.Is(err, ErrLost) { // another has the key, to whom the lease may have been handed over
				return
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.failed++
			h.err = err
		})
	}
}

// takeFailed returns an error if releases have failed. A second call returns nil.
func (h *held) takeFailed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.failed
	if h.failed = 0; n == 0 {
		return nil
	}
	return fmt.Errorf("lock: close: %d leases are not released, and run out: %w", n, h.err)
}
