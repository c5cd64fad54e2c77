package pipeline

import (
	"context"
	"sync"
	"time"
)

// sharedDeadline is the context under which commands are sent. All commands that begin within a short window share one,
// because a context for each command would cost more than the rest of sending it. Two fields of Pipeline make them:
// deadlines for commands that workers send, which end after the last of their callers has stopped waiting, and
// inlineDeadlines, which end no later than the first of their callers has to return.
type sharedDeadline struct {
	lastStart time.Time // a command that begins later gets another deadline
	end       time.Time
	done      chan struct{}   // closed at end
	values    context.Context // see Group.Base
}

func (d *sharedDeadline) Deadline() (time.Time, bool) { return d.end, true }

func (d *sharedDeadline) Done() <-chan struct{} { return d.done }

func (d *sharedDeadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value returns the value of the base context: a batch has several callers.
func (d *sharedDeadline) Value(key any) any { return d.values.Value(key) }

// deadlines makes deadlines and hands out the current one.
type deadlines struct {
	window   time.Duration // how long commands may begin under one deadline
	lifetime time.Duration // from a deadline's first command to its end
	values   context.Context

	mu      sync.Mutex
	current *sharedDeadline // guarded by mu; nil until first needed
}

// forStart returns the deadline of a command that begins at start.
func (ds *deadlines) forStart(start time.Time) *sharedDeadline {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.current == nil || start.After(ds.current.lastStart) {
		d := &sharedDeadline{
			lastStart: start.Add(ds.window), end: start.Add(ds.lifetime), done: make(chan struct{}), values: ds.values,
		}
		time.AfterFunc(time.Until(d.end), func() { close(d.done) })
		ds.current = d
	}
	return ds.current
}
