package lock

import (
	"context"
	"sync"
	"time"
)

// term is the context of all commands that are sent within a short while. It ends when none of their callers waits any
// more: a client that heeds contexts gives up then too. One for each command would cost more than all the rest of
// sending it.
type term struct {
	last     time.Time // that a command may begin
	deadline time.Time
	done     chan struct{}
}

func newTerm(start time.Time, opTimeout time.Duration) *term {
	last := start.Add(opTimeout / 10)
	t := &term{last: last, deadline: last.Add(opTimeout), done: make(chan struct{})}
	time.AfterFunc(t.deadline.Sub(start), func() { close(t.done) })
	return t
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
	mu      sync.Mutex
	current *term
}

func (ts *terms) at(now time.Time, opTimeout time.Duration) *term {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.current == nil || now.After(ts.current.last) {
		ts.current = newTerm(now, opTimeout)
	}
	return ts.current
}
