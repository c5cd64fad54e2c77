package lock

import (
	"sync"
	"time"
)

// seat is what a caller waits on: a timer for its deadline, and a channel that tells that its command has landed. Seats
// are used again.
type seat struct {
	timer   *time.Timer
	done    chan struct{}
	awaited bool // the channel is still to receive for a command
}

type seats struct{ pool sync.Pool }

// take returns a seat whose timer fires after d.
func (ss *seats) take(d time.Duration) *seat {
	if s, ok := ss.pool.Get().(*seat); ok {
		s.timer.Reset(d)
		return s
	}
	return &seat{timer: time.NewTimer(d), done: make(chan struct{}, 1)}
}

// leave gives a seat back, if nothing can come any more for who had it.
func (ss *seats) leave(s *seat) {
	if s.timer.Stop() && !s.awaited {
		ss.pool.Put(s)
	}
}
