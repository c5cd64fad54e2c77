package pipeline

import (
	"context"
	"sync"
	"time"
)

// deadline is the context of all commands that are sent within a short while. When it ends no caller of them waits any
// more, or each has to return: a client that honors contexts returns then. A context for each command would cost more
// than the rest of sending it.
type deadline struct {
	last time.Time // that a command may begin
	at   time.Time
	done chan struct{}
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (d *deadline) Value(any) any { return nil }

// deadlines hands out the current one.
type deadlines struct {
	open, length time.Duration // how long commands may begin under a deadline, and until it ends

	mu      sync.Mutex
	current *deadline // guarded by mu
}

func (ds *deadlines) at(now time.Time) *deadline {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.current == nil || now.After(ds.current.last) {
		d := &deadline{last: now.Add(ds.open), at: now.Add(ds.length), done: make(chan struct{})}
		time.AfterFunc(time.Until(d.at), func() { close(d.done) })
		ds.current = d
	}
	return ds.current
}
