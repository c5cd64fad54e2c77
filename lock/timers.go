package lock

import (
	"sync"
	"time"
)

// timers keeps stopped timers for reuse.
type timers struct{ pool sync.Pool }

func (ts *timers) start(d time.Duration) *time.Timer {
	if t, ok := ts.pool.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// stop ends a timer, whether or not it has fired.
func (ts *timers) stop(t *time.Timer) {
	if !t.Stop() {
		select { // it may hold a time, with GODEBUG=asynctimerchan=1
		case <-t.C:
		default:
		}
	}
	ts.pool.Put(t)
}
