package lock

import (
	"context"
	"sync"
	"time"
)

// term is the context of all commands that are sent within a short while. When it ends none of their callers waits any
// more, or they are to give up themselves: a client that heeds contexts does so then. One for each command would cost
// more than all the rest of sending it.
type term struct {
	last     time.Time // that a command may begin
	deadline time.Time
	done     chan struct{}
}

func (t *term) Deadline() (time.Time, bool) { return t.deadline, true }

func (t *term) Done() <-chan struct{} { return t.done }

func (t *term) Err() error {
	select {
	case <-t.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (t *term) Value(any) any { return nil }

// terms hands out the current one.
type terms struct {
	open, length time.Duration // how long commands may begin under a term, and until it ends

	mu      sync.Mutex
	current *term
}

func (ts *terms) at(now time.Time) *term {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.current == nil || now.After(ts.current.last) {
		t := &term{last: now.Add(ts.open), deadline: now.Add(ts.length), done: make(chan struct{})}
		time.AfterFunc(time.Until(t.deadline), func() { close(t.done) })
		ts.current = t
	}
	return ts.current
}
