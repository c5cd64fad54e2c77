package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// result is what one measurement came to.
type result struct {
	answers []int // by caller
	elapsed time.Duration
	allocs  uint64 // objects, of the whole process
	bytes   uint64 // that they had
}

func (r result) total() int {
	n := 0
	for _, answers := range r.answers {
		n += answers
	}
	return n
}

// limit begins when it is called, and returns what tells a caller who had so many answers whether to go on. That is
// called concurrently.
type limit func() (more func(answers int) bool)

// forTime lets each caller have at least one answer.
func forTime(d time.Duration) limit {
	return func() func(int) bool {
		var over atomic.Bool
		time.AfterFunc(d, func() { over.Store(true) })
		return func(answers int) bool { return answers == 0 || !over.Load() }
	}
}

// forCount lets all callers together have n answers.
func forCount(n int) limit {
	return func() func(int) bool {
		var left atomic.Int64
		left.Store(int64(n))
		return func(int) bool { return left.Add(-1) >= 0 }
	}
}

// measure empties the store, lets the callers loose on s until the limit, and checks what came of it.
func measure(ctx context.Context, s subject, c conditions, until limit) (result, error) {
	if err := c.store.clear(ctx); err != nil {
		return result{}, fmt.Errorf("emptying Redis: %w", err)
	}
	if err := s.begin(ctx); err != nil {
		return result{}, fmt.Errorf("preparing: %w", err)
	}
	r, err := race(s.caller, c.callers, until)
	// Ended also after a failure, so that nothing is left to run.
	if endErr := s.end(ctx, r.answers); err == nil {
		err = endErr
	}
	return r, err
}

// race is the measurement itself: caller returns what each of them does again and again. Time and allocations are from
// when all callers are ready until the last one is done.
func race(caller func(number int) func() error, callers int, until limit) (result, error) {
	r := result{answers: make([]int, callers)}
	errs := make([]error, callers)
	var failed atomic.Bool
	var more func(answers int) bool
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range callers {
		ready.Add(1)
		done.Go(func() {
			call := caller(i)
			answers := 0
			ready.Done()
			<-start
			for more(answers) && !failed.Load() {
				if err := call(); err != nil {
					errs[i] = fmt.Errorf("caller %d, after %d answers: %w", i, answers, err)
					failed.Store(true)
					break
				}
				answers++
			}
			r.answers[i] = answers
		})
	}
	ready.Wait()
	runtime.GC() // of what others have left
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	more = until()
	close(start)
	done.Wait()
	r.elapsed = time.Since(began)
	runtime.ReadMemStats(&after)
	r.allocs = after.Mallocs - before.Mallocs
	r.bytes = after.TotalAlloc - before.TotalAlloc
	for _, err := range errs {
		if err != nil {
			return r, err
		}
	}
	return r, nil
}
