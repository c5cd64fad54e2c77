package pipeline

import (
	"sync"
	"time"
)

// waker wakes the goroutine of a Call that waits: its timer fires when the operation times out, and its channel
// receives when the command is complete. Wakers are used again, because a new timer and channel for each Call would
// cost more than the rest of waiting.
type waker struct {
	timer       *time.Timer
	done        chan struct{} // holds one token
	expectsDone bool          // done will still receive for a command of this Call
}

// wakerPool has the wakers that no Call uses. Its methods may be called concurrently.
type wakerPool struct{ pool sync.Pool }

// get returns a waker whose timer fires after d.
func (p *wakerPool) get(d time.Duration) *waker {
	if w, ok := p.pool.Get().(*waker); ok {
		w.timer.Reset(d)
		return w
	}
	return &waker{timer: time.NewTimer(d), done: make(chan struct{}, 1)}
}

// put lets another Call use w, unless its timer has fired or its channel will still receive for this Call.
func (p *wakerPool) put(w *waker) {
	if w.timer.Stop() && !w.expectsDone {
		p.pool.Put(w)
	}
}
