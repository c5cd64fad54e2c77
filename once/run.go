package once

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/internal/run"
)

// protect runs f and concludes the run. It calls the observer, unless something replaces what f has returned.
func (c *call) protect(f func(context.Context) (any, error)) run.Result {
	r, p := &c.run, &product{Guard: c.Guard}
	var v any
	var err error
	result := r.Do(
		func() { v, err = c.callFunction(p, f) },
		func() run.Ending { return p.take(v, err) },
		func(interrupted run.Result) { c.report(&interrupted) })
	p.body = nil // a pending lease, whose context has p, holds the encoded record instead
	if result.Kind == run.Own {
		c.report(&result)
	}
	return result
}

// callFunction calls f, passes what f knows about its effect to the run's Control, and cuts off what f leaves behind.
func (c *call) callFunction(p *product, f func(context.Context) (any, error)) (v any, err error) {
	r := &c.run
	exec := &Execution{key: r.StorageKey, fence: r.Fence(), control: r.Control(), product: p}
	r.ContextKey, r.ContextValue = executionKey{}, exec
	ctx := r.Start(p)
	if c.endsWithCaller {
		ending, cancel := context.WithCancelCause(ctx)
		defer cancel(context.Canceled)
		defer context.AfterFunc(c.ctx, func() { cancel(foreignOf(context.Cause(c.ctx))) })() // the deferred call ends the watch on c.ctx
		ctx = withCallers{ending, ctx}
	}
	v, err = f(ctx)
	switch knowledgeOf(err) {
	case nothingHappened:
		_ = r.Control().Discard() // fails only after Keep or Unknown, which nothing else calls
	case final:
		r.Control().Keep()
	case unknown:
		r.Control().Unknown()
	}
	r.CutOff()
	return v, err
}

// withCallers is the context of a run that ends with its caller's too. Each method that tells whether it is done calls
// Err of the run's context first, which ends both if the lease is over: see lock.Lease.Err.
type withCallers struct {
	context.Context                 // derived from run
	run             context.Context // of the run alone
}

func (c withCallers) Done() <-chan struct{} {
	_ = c.run.Err()
	return c.Context.Done()
}

func (c withCallers) Err() error {
	_ = c.run.Err()
	return c.Context.Err()
}

// Value finds values, and for package context, with an *int as the key, the nearest parent that can be cancelled. Before
// Go 1.26 context.Cause calls it instead of Err.
func (c withCallers) Value(key any) any {
	if _, ok := key.(*int); ok {
		_ = c.run.Err()
	}
	return c.Context.Value(key)
}

// runUnprotected runs f in the caller's context, outside of any other run, and calls the observer.
func (c *call) runUnprotected(result *run.Result, f func(context.Context) (any, error)) {
	start := time.Now()
	defer func() {
		c.run.Phases.Operation = run.PhaseSince(start)
		c.report(result)
	}()
	ctx := context.WithValue(c.ctx, executionKey{}, (*Execution)(nil))
	_, _ = f(run.OutsideJournal(ctx, c.ctx))
}
