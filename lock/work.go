package lock

import (
	"context"
	"sync"
)

// work counts what goes on, so that Close can end and wait for it. A sync.WaitGroup would not do: it must not grow from
// zero while somebody waits, and a lease may be released while Close does.
type work struct {
	ctx    context.Context // done after close: background work is to end
	cancel context.CancelFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when running falls to zero; nil while nobody waits
}

func (w *work) init() {
	w.ctx, w.cancel = context.WithCancel(context.Background())
}

func (w *work) closed() bool { return w.ctx.Err() != nil }

// run calls f in a goroutine that close waits for.
func (w *work) run(f func()) {
	w.begin()
	go func() {
		defer w.done()
		f()
	}()
}

// begin counts what is to call done at its end.
func (w *work) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running++
}

func (w *work) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if w.running == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

func (w *work) close(ctx context.Context) error {
	w.cancel()
	w.mu.Lock()
	if w.running == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
