package pipeline

import (
	"context"
	"runtime/pprof"
	"sync"
	"time"
)

// minIdle is how long an idle worker stays at least. It ends before twice that time.
const minIdle = 100 * time.Millisecond

// Workers are goroutines that send batches, for all queues of a Locker or Quorum. An idle worker stays for 100 to 200 ms:
// go-redis calls deep, and growing a fresh stack costs more than the send. Workers may be used concurrently.
//
// The worker that became idle last gets the next batch, so those at the bottom of the stack are the ones that are not
// needed. Each has a channel of its own: a select on a shared one, a timer and the end took a tenth of a lone request.
type Workers struct {
	mu      sync.Mutex
	idle    []chan *batch // a stack of workers; each channel has room for one batch, and is closed to end its worker
	unused  int           // how many at the bottom of idle have stayed there since the last reap
	reaping bool          // a timer for reap runs
	closed  bool
}

// NewWorkers returns Workers without a goroutine: the first batch starts one.
func NewWorkers() *Workers { return &Workers{} }

// Close ends idle workers now and the others once they have sent their batches. Batches that come later are still sent,
// each by a new goroutine.
func (w *Workers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed, w.unused = true, 0
	w.end(len(w.idle))
}

// send gives b to an idle worker, or to a new one. The worker then sends what waits in b's queue as well.
func (w *Workers) send(b *batch) {
	w.mu.Lock()
	n := len(w.idle) - 1
	if n < 0 {
		w.mu.Unlock()
		go w.work(b)
		return
	}
	worker := w.idle[n]
	w.idle, w.unused = w.idle[:n], min(w.unused, n)
	w.mu.Unlock()
	worker <- b
}

// work is one worker.
func (w *Workers) work(b *batch) {
	pprof.SetGoroutineLabels(context.Background()) // a goroutine inherits those of the caller that started it
	jobs := make(chan *batch, 1)
	for b != nil {
		b.queue.send(b)
		if !w.rest(jobs) {
			return
		}
		b = <-jobs
	}
}

// rest adds a worker to those that are idle. It returns false after Close.
func (w *Workers) rest(jobs chan *batch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.idle = append(w.idle, jobs)
	if !w.reaping {
		w.reaping = true
		time.AfterFunc(minIdle, w.reap)
	}
	return true
}

// reap ends the workers that were idle since the last time, and reschedules itself while any are left.
func (w *Workers) reap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(w.unused)
	w.unused, w.reaping = len(w.idle), len(w.idle) > 0
	if w.reaping {
		time.AfterFunc(minIdle, w.reap)
	}
}

// end ends n workers at the bottom of the stack. The caller holds mu.
func (w *Workers) end(n int) {
	for _, worker := range w.idle[:n] {
		close(worker)
	}
	rest := copy(w.idle, w.idle[n:])
	clear(w.idle[rest:])
	w.idle = w.idle[:rest]
}
