package pipeline

import (
	"context"
	"runtime/pprof"
	"slices"
	"sync"
	"time"
)

// minIdle is how long an idle worker stays at least. It ends before twice that time.
const minIdle = 100 * time.Millisecond

// Workers are goroutines that send batches, for all queues of a Locker. An idle worker stays for 100 to 200 ms: go-redis's call stack is deep, and growing a new goroutine's stack costs more than the send itself. Workers
// may be used concurrently.
//
// The worker that became idle last gets the next batch, so those at the bottom of the stack are not needed. Each worker
// waits on one channel: a select over a shared channel, a timer and a stop signal cost 10% of an uncontended request.
type Workers struct {
	mu      sync.Mutex
	idle    []chan *batch // guarded by mu, as all below; a stack: the jobs of each idle worker
	unused  int           // how many at the bottom of idle were not needed since the last reap
	reaping bool          // a timer for reap runs
	closed  bool          // only becomes true
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

// assign gives b to an idle worker, or to a new one. The worker then sends what waits in b's queue as well.
func (w *Workers) assign(b *batch) {
	w.mu.Lock()
	n := len(w.idle) - 1
	if n < 0 {
		w.mu.Unlock()
		go w.work(b)
		return
	}
	jobs := w.idle[n]
	w.idle, w.unused = w.idle[:n], min(w.unused, n)
	w.mu.Unlock()
	jobs <- b
}

// work runs one worker. It gets the next batch from its channel, jobs, which has room for one, and ends when that is
// closed.
func (w *Workers) work(b *batch) {
	pprof.SetGoroutineLabels(context.Background()) // a goroutine inherits those of the caller that started it
	jobs := make(chan *batch, 1)
	for b != nil {
		b.queue.sendBatches(b)
		if !w.addIdle(jobs) {
			return
		}
		b = <-jobs
	}
}

// addIdle makes an idle worker available to assign. It returns false after Close: the worker has to end.
func (w *Workers) addIdle(jobs chan *batch) bool {
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

// reap ends the workers that were idle since the last time, and schedules itself again if any are left.
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
	for _, jobs := range w.idle[:n] {
		close(jobs)
	}
	w.idle = slices.Delete(w.idle, 0, n)
}
