// Package background runs work that outlives the call that began it, and lets Close wait for it. A [Group] counts that
// work, a [Room] limits how much of it waits, and [Turns.Retry] repeats what has failed.
package background

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Group counts background work, so that Close can end it and wait for it. (Work may begin during Close. A
// sync.WaitGroup does not allow that: its counter must not grow from zero while a goroutine waits.) A Group's methods
// may be called concurrently.
type Group struct {
	base   context.Context // never done
	ctx    context.Context // carries the values of base; done once Close was called
	cancel context.CancelFunc

	mu      sync.Mutex
	running int           // guarded by mu
	idle    chan struct{} // guarded by mu; closed when running falls to zero; nil unless a Close waits
}

// NewGroup returns an open Group, whose contexts carry the values of base, but not its cancellation.
func NewGroup(base context.Context) *Group {
	g := &Group{base: WithoutEnd(base)}
	g.ctx, g.cancel = context.WithCancel(g.base)
	return g
}

// Context returns a context that is done once Close was called. Background work must then end.
func (g *Group) Context() context.Context { return g.ctx }

// Base returns a context that is never done. It is for commands that no single caller waits for: see
// lock.WithBaseContext.
func (g *Group) Base() context.Context { return g.base }

// Closed reports whether Close was called.
func (g *Group) Closed() bool { return g.ctx.Err() != nil }

// Go calls f in a goroutine that Close waits for.
func (g *Group) Go(f func()) {
	g.Begin()
	go func() {
		defer g.Done()
		f()
	}()
}

// Begin counts work that the caller does. The caller calls Done when the work has ended.
func (g *Group) Begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running++
}

// Done ends the work that Begin has counted.
func (g *Group) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.running == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Close ends Context and waits until no work runs. If ctx is done first, Close returns its cause. Close may be called
// again.
func (g *Group) Close(ctx context.Context) error {
	g.cancel()
	g.mu.Lock()
	if g.running == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TimeoutError is the error of an operation that has timed out. Its value is the time that the operation had. It wraps
// [context.DeadlineExceeded].
type TimeoutError time.Duration

// Error returns the message, with the time that the operation had.
func (e TimeoutError) Error() string {
	return "no answer from Redis within " + time.Duration(e).String()
}

// Unwrap returns context.DeadlineExceeded.
func (e TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// Pause waits for d and returns nil. If ctx is done first, it returns the cause of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WithoutEnd returns a context that carries the values of ctx and is never done.
func WithoutEnd(ctx context.Context) context.Context {
	if _, hasDeadline := ctx.Deadline(); !hasDeadline && ctx.Done() == nil { // saves an allocation
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// Signal puts a token into ch, which has room for one, unless it holds one already.
func Signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Jitter returns a random duration from 0 up to, and not including, d, which must be positive.
func Jitter(d time.Duration) time.Duration { return rand.N(d) }
