package pipeline

import (
	"context"
	"runtime/pprof"
	"sync"
	"time"
)

// maxIdle is how long an idle worker stays.
const maxIdle = 100 * time.Millisecond

// Workers are goroutines that send batches, for all queues of a Locker or Quorum. An idle worker stays for 100 ms:
// go-redis calls deep, and growing a fresh stack costs more than the send. Workers may be used concurrently, and hold
// no lock.
type Workers struct {
	jobs   chan *batch // unbuffered: only an idle worker receives
	closed chan struct{}
	once   sync.Once // guards the close of closed
}

// NewWorkers returns Workers without a goroutine: the first batch starts one.
func NewWorkers() *Workers { return &Workers{jobs: make(chan *batch), closed: make(chan struct{})} }

// Close ends idle workers now and the others once they have sent their batches. Batches that come later are still sent,
// each by a new goroutine.
func (w *Workers) Close() { w.once.Do(func() { close(w.closed) }) }

// send gives b to an idle worker, or to a new one. The worker then sends what waits in b's queue as well.
func (w *Workers) send(b *batch) {
	select {
	case w.jobs <- b:
	default:
		go w.work(b)
	}
}

// work is one worker.
func (w *Workers) work(b *batch) {
	pprof.SetGoroutineLabels(context.Background()) // a goroutine inherits those of the caller that started it
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
