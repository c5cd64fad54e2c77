package pipeline

import (
	"context"
	"sync"
	"time"
)

// sharedContexts makes the contexts under which commands are sent, each when a Call first needs it. All Calls that start
// within a tenth of OpTimeout, the window, share one: a context for each command would cost more than sending it. A
// Pipeline has two kinds, which differ in when they end:
//
//	workerContexts   OpTimeout after the window's end, when the last of the callers has timed out
//	inlineContexts   OpTimeout after the window's beginning, before any of the callers times out, because an inline
//	                 caller cannot return before go-redis does
//
// They carry the values of the base context (see Group.Base), because a batch has several callers.
type sharedContexts struct {
	window   time.Duration // Calls that start this long after a context's first Call still share it
	lifetime time.Duration // from the start of a context's first Call to its end
	base     context.Context

	mu        sync.Mutex
	current   context.Context    // guarded by mu, as all below
	cancel    context.CancelFunc // of current; not called: current ends by itself
	lastStart time.Time          // the window's end: a Call that starts later gets another context
}

// forStart returns the context for a Call that started at start.
func (cs *sharedContexts) forStart(start time.Time) context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if start.After(cs.lastStart) {
		cs.current, cs.cancel = context.WithDeadline(cs.base, start.Add(cs.lifetime))
		cs.lastStart = start.Add(cs.window)
	}
	return cs.current
}
