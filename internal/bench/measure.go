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
func measure(ctx context.Context, s *subject, c conditions, d time.Duration) (result, error) {
	if err := c.server.clear(ctx); err != nil {
		return result{}, fmt.Errorf("emptying Redis: %w", err)
	}
	if s.begin != nil {
		if err := s.begin(ctx); err != nil {
			return result{}, fmt.Errorf("preparing: %w", err)
		}
	}
	r, err := race(s.caller, c.callers, d)
	// The end comes after a failure too, so that nothing is left to run.
	if endErr := s.end(ctx, r.answers); err == nil {
		err = endErr
	}
	return r, err
}

// race lets the callers repeat what caller returns for each, until the time is over, and at least once, or until the first
// error. The time counts from when all callers are ready until the last one is done.
func race(caller func(i int) func() error, callers int, d time.Duration) (result, error) {
	var (
		r           = result{answers: make([]int, callers)}
		over        atomic.Bool
		failure     atomic.Pointer[error]
		start       = make(chan struct{})
		ready, done sync.WaitGroup
	)
	more := func(answers int) bool { return failure.Load() == nil && (answers == 0 || !over.Load()) }
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
	time.AfterFunc(d, func() { over.Store(true) })
	close(start)
	done.Wait()
	r.elapsed = time.Since(began)
	if err := failure.Load(); err != nil {
		return r, *err
	}
	return r, nil
}
