// Counts of right and wrong answers while callers go on.

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/onceguard/onceguard/middleware"
)

// counts are what a tally has counted.
type counts struct {
	latencies *hdrhistogram.Histogram // of answers that look right, in nanoseconds
	unstored  int                     // those among them whose response was not stored
	failed    int                     // wrong answers, and unstored ones
	failure   error                   // the first reason of a failure
}

// right returns how many answers were right.
func (c counts) right() int { return int(c.latencies.TotalCount()) - c.unstored }

// quantile returns the latency that q percent of the answers did not exceed, to within 1 %.
func (c counts) quantile(q float64) time.Duration {
	return time.Duration(c.latencies.ValueAtQuantile(q))
}

// tally counts answers. Its methods may be called concurrently.
type tally struct {
	mu     sync.Mutex
	counts counts // guarded by mu
}

func newTally() *tally {
	t := new(tally)
	t.take()
	return t
}

// take returns what was counted since the call before.
func (t *tally) take() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.counts
	t.counts = counts{latencies: hdrhistogram.New(1, time.Hour.Nanoseconds(), 2)}
	return taken
}

// note counts the answer to a request that began then. err says why the answer is wrong, if it is.
func (t *tally) note(err error, began time.Time) {
	latency := time.Since(began)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		err = t.counts.latencies.RecordValue(latency.Nanoseconds())
	}
	if err != nil {
		t.counts.failed++
		t.fail(err)
	}
}

// observe is the middleware's observer. A response that was sent but not stored looks right to the caller.
func (t *tally) observe(_ context.Context, e middleware.Event) {
	if e.Err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail(fmt.Errorf("%s: %w", e.Outcome, e.Err))
	if e.Status == http.StatusCreated {
		t.counts.unstored++
		t.counts.failed++
	}
}

// fail keeps the first reason: the middleware's comes before the caller's. The caller holds mu.
func (t *tally) fail(err error) {
	if t.counts.failure == nil {
		t.counts.failure = err
	}
}
