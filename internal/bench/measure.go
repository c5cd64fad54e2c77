// One measurement: callers that do the same again and again, all at once.

package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// limit ends a race after a time, in which every caller gets at least one answer, or after a number of answers of all
// callers together. The one that is 0 does not count.
type limit struct {
	time    time.Duration
	answers int
}

// result is what one race came to.
type result struct {
	answers []int // by caller
	elapsed time.Duration
}

func (r result) rate() float64 { return float64(sum(r.answers)) / r.elapsed.Seconds() }

func sum(numbers []int) int {
	total := 0
	for _, n := range numbers {
		total += n
	}
	return total
}

// measure empties Redis, races the callers of s, and checks what they have done.
func measure(ctx context.Context, s *subject, c conditions, l limit) (result, error) {
	if err := c.server.clear(ctx); err != nil {
		return result{}, fmt.Errorf("emptying Redis: %w", err)
	}
	if s.begin != nil {
		if err := s.begin(ctx); err != nil {
			return result{}, fmt.Errorf("preparing: %w", err)
		}
	}
	r, err := race(s.caller, c.callers, l)
	// The end comes after a failure too, so that nothing is left to run.
	if endErr := s.end(ctx, r.answers); err == nil {
		err = endErr
	}
	return r, err
}

// race lets the callers repeat what caller returns for each, until the limit or the first error. The time
// counts from when all callers are ready until the last one is done.
func race(caller func(i int) func() error, callers int, l limit) (result, error) {
	var (
		r           = result{answers: make([]int, callers)}
		over        atomic.Bool
		left        atomic.Int64
		failure     atomic.Pointer[error]
		start       = make(chan struct{})
		ready, done sync.WaitGroup
	)
	left.Store(int64(l.answers))
	more := func(answers int) bool {
		return failure.Load() == nil && (answers == 0 || !over.Load()) && (l.answers == 0 || left.Add(-1) >= 0)
	}
	for i := range callers {
		ready.Add(1)
		done.Go(func() {
			call, answers := caller(i), 0
			ready.Done()
			<-start
			for ; more(answers); answers++ {
				if err := call(); err != nil {
					named := fmt.Errorf("caller %d, after %d answers: %w", i, answers, err)
					failure.CompareAndSwap(nil, &named)
					break
				}
			}
			r.answers[i] = answers
		})
	}
	ready.Wait()
	runtime.GC() // of what earlier measurements have left
	began := time.Now()
	if l.time > 0 {
		time.AfterFunc(l.time, func() { over.Store(true) })
	}
	close(start)
	done.Wait()
	r.elapsed = time.Since(began)
	if err := failure.Load(); err != nil {
		return r, *err
	}
	return r, nil
}
