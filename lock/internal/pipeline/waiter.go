package pipeline

import (
	"sync"
	"time"
)

// waiter is what a caller waits on: a timer for its deadline, and a channel that tells that its command is complete.
// Waiters are used again: a new timer and channel for each call would cost more than the rest of waiting.
type waiter struct {
	timer   *time.Timer
	done    chan struct{}
	pending bool // the channel is still to receive for a command
}

type waiterPool struct{ pool sync.Pool }

// take returns a waiter whose timer fires after d.
func (p *waiterPool) take(d time.Duration) *waiter {
	if w, ok := p.pool.Get().(*waiter); ok {
		w.timer.Reset(d)
		return w
	}
	return &waiter{timer: time.NewTimer(d), done: make(chan struct{}, 1)}
}

// put lets others use w, unless something may still come for the call that had it.
func (p *waiterPool) put(w *waiter) {
	if w.timer.Stop() && !w.pending {
		p.pool.Put(w)
	}
}
