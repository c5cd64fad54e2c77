package pipeline

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func (w *Workers) countIdle() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.idle)
}

// becomeIdle starts four workers and waits until they are idle.
func becomeIdle(t *testing.T, p *Pipeline, n *fakeNode) {
	t.Helper()
	n.takes = func([]string) time.Duration { return 10 * ms }
	var results []func() Result
	for i := range 4 {
		results = append(results, start(p, t.Context(), fmt.Sprint(i), nil))
	}
	for _, result := range results {
		result()
	}
	n.takes = nil
	synctest.Wait()
	if got := p.workers.countIdle(); got != 4 {
		t.Fatalf("%d workers are idle, want 4", got)
	}
}

// Workers that are not needed end, and the one in use stays.
func TestIdleWorkersEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		becomeIdle(t, p, n)
		time.Sleep(minIdle - ms)
		if got := p.workers.countIdle(); got != 4 {
			t.Errorf("%d workers are idle before minIdle, want 4", got)
		}
		for range 20 {
			start(p, t.Context(), "a", nil)()
			time.Sleep(minIdle / 4)
		}
		if got := p.workers.countIdle(); got != 1 {
			t.Errorf("%d workers are idle, want the one that is used", got)
		}
		time.Sleep(2 * minIdle)
		if got := p.workers.countIdle(); got != 0 {
			t.Errorf("%d workers are idle after minIdle, want none", got)
		}
		wantReply(t, start(p, t.Context(), "b", nil)(), "b")
	})
}

// Close ends idle workers at once, and a busy one after its batch. Later batches are still sent. The bubble fails if a
// goroutine is left.
func TestWorkersClose(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		becomeIdle(t, p, n)
		time.Sleep(minIdle) // so that some count as unused
		n.takes = func([]string) time.Duration { return 10 * ms }
		last := start(p, t.Context(), "last", nil)
		p.workers.Close()
		synctest.Wait()
		if got := p.workers.countIdle(); got != 0 {
			t.Errorf("%d workers are idle after Close", got)
		}
		wantReply(t, last(), "last")
		wantReply(t, start(p, t.Context(), "later", nil)(), "later")
		time.Sleep(2 * minIdle)
		if got := p.workers.countIdle(); got != 0 {
			t.Errorf("%d workers are idle after Close", got)
		}
	})
}

// A worker that is busy when the idle ones are ended stays.
func TestBusyWorkerStays(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, p *Pipeline, n *fakeNode) {
		becomeIdle(t, p, n)
		time.Sleep(minIdle + 10*ms) // from now on all four count as unused
		n.takes = func([]string) time.Duration { return 2 * minIdle }
		slow := start(p, t.Context(), "slow", nil)
		time.Sleep(minIdle)
		synctest.Wait()
		if got := p.workers.countIdle(); got != 0 {
			t.Errorf("%d workers are idle, want none but the busy one", got)
		}
		wantReply(t, slow(), "slow")
		synctest.Wait()
		if got := p.workers.countIdle(); got != 1 {
			t.Errorf("%d workers are idle, want the one that was busy", got)
		}
	})
}
