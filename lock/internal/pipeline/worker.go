package pipeline

import (
	"context"
	"runtime/pprof"
	"sync"
	"time"
)

// maxIdle is how long a worker stays without work.
const maxIdle = 100 * time.Millisecond

// Workers send batches. An idle worker stays for a while: go-redis calls deep, and growing a fresh stack for each batch
// costs more than sending it.
type Workers struct {
	jobs   chan *batch // has no room: a worker that is idle takes a batch at once
	closed chan struct{}
	once   sync.Once
}

// NewWorkers returns Workers, of which none is there yet.
func NewWorkers() *Workers { return &Workers{jobs: make(chan *batch), closed: make(chan struct{})} }

// Close lets every worker go, one that sends when it is done with that. Batches are still sent afterwards.
func (w *Workers) Close() { w.once.Do(func() { close(w.closed) }) }

// send lets a worker send b, and what waits behind it.
func (w *Workers) send(b *batch) {
	select {
	case w.jobs <- b:
	default:
		go w.work(b)
	}
}

func (w *Workers) work(b *batch) {
	pprof.SetGoroutineLabels(context.Background()) // not those of the caller that came first
	idle := time.NewTimer(maxIdle)
	defer idle.Stop()
	for {
		b.queue.send(b)
		idle.Reset(maxIdle)
		select {
		case b = <-w.jobs:
		case <-idle.C:
			return
		case <-w.closed:
			return
		}
	}
}
