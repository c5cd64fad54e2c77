package pipeline

import (
	"context"
	"sync"
	"time"
)

// sharedContext is the context under which commands are sent. All Calls that start within a tenth of OpTimeout, the
// window, share one: a context for each command would cost more than sending it. A Pipeline has two kinds, which differ
// in when they end:
//
//	workerContexts   OpTimeout after the window's end, when the last of the callers has timed out
//	inlineContexts   OpTimeout after the window's beginning, before any of the callers times out, because an inline
//	                 caller cannot return before go-redis does
type sharedContext struct {
	lastStart time.Time // the window's end: a Call that starts later gets another context
	end       time.Time
	done      chan struct{}   // closed at end
	values    context.Context // see Group.Base
}

func (s *sharedContext) Deadline() (time.Time, bool) { return s.end, true }

func (s *sharedContext) Done() <-chan struct{} { return s.done }

func (s *sharedContext) Err() error {
	select {
	case <-s.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value returns the value of the base context: a batch has several callers.
func (s *sharedContext) Value(key any) any { return s.values.Value(key) }

// sharedContexts makes the contexts of one kind, each when a Call first needs it.
type sharedContexts struct {
	window   time.Duration // Calls that start this long after a context's first Call still share it
	lifetime time.Duration // from the start of a context's first Call to its end
	values   context.Context

	mu      sync.Mutex
	current *sharedContext // guarded by mu; nil until first needed
}

// forStart returns the context for a Call that started at start.
func (cs *sharedContexts) forStart(start time.Time) *sharedContext {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.current == nil || start.After(cs.current.lastStart) {
		ctx := &sharedContext{
			lastStart: start.Add(cs.window), end: start.Add(cs.lifetime), done: make(chan struct{}), values: cs.values,
		}
		time.AfterFunc(time.Until(ctx.end), func() { close(ctx.done) })
		cs.current = ctx
	}
	return cs.current
}
