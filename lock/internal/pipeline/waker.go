package pipeline

import (
	"sync"
	"time"
)

// waker wakes the goroutine of a waiting Call when its command is complete or the operation times out. Wakers are
// reused, and one channel has both events: a new timer and channels for each Call cost 10 % of the CPU of a claim and
// its settlement with 64 callers.
type waker struct {
	events    chan event  // has room for both, so a sender never waits
	timer     *time.Timer // sends timedOut
	expecting bool        // events will still receive completed for a command of this Call
}

type event uint8

const (
	completed event = iota
	timedOut
)

// wakerPool keeps the wakers that no Call uses. Its methods may be called concurrently.
type wakerPool struct{ pool sync.Pool }

// get returns a waker whose timer fires after d.
func (p *wakerPool) get(d time.Duration) *waker {
	if w, ok := p.pool.Get().(*waker); ok {
		w.timer.Reset(d)
		return w
	}
	w := &waker{events: make(chan event, 2)}
	w.timer = time.AfterFunc(d, func() { w.events <- timedOut })
	return w
}

// put lets another Call use w, unless the timer of w has fired or its channel will still receive an event for this
// Call.
func (p *wakerPool) put(w *waker) {
	if w.timer.Stop() && !w.expecting {
		p.pool.Put(w)
	}
}
