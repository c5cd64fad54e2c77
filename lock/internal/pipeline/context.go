package pipeline

import (
	"context"
	"sync"
	"time"
)

// sharedContexts makes the contexts under which batches are sent, each when a batch first needs it. All batches that
// start within a tenth of OpTimeout, the window, share one: a context for each would cost more than sending it. A context
// ends OpTimeout after the window's end, when the last of the callers has timed out. It carries the values of the base
// context (see Group.Base), because a batch has several callers.
type sharedContexts struct {
	window   time.Duration // batches that start this long after a context's first one still share it
	lifetime time.Duration // from the start of a context's first batch to its end
	base     context.Context

	mu        sync.Mutex
	current   context.Context    // guarded by mu, as all below
	cancel    context.CancelFunc // of current; not called: current ends by itself
	lastStart time.Time          // the window's end: a batch that starts later gets another context
}

// forStart returns the context for a batch that starts at start.
func (cs *sharedContexts) forStart(start time.Time) context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if start.After(cs.lastStart) {
		cs.current, cs.cancel = context.WithDeadline(cs.base, start.Add(cs.lifetime))
		cs.lastStart = start.Add(cs.window)
	}
	return cs.current
}
