package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// timed keeps how long answers took, and counts wrong ones. The zero value has none.
type timed struct {
	latencies histogram    // of answers that look right
	unstored  atomic.Int64 // those among them whose response was not stored when they went out
	failed    atomic.Int64 // wrong ones, and those
	last      atomic.Pointer[error]
	reason    atomic.Pointer[error] // what the middleware says of one of them
}

func (t *timed) reset() {
	t.latencies.take()
	t.unstored.Store(0)
	t.failed.Store(0)
	t.last.Store(nil)
	t.reason.Store(nil)
}

// wrap returns a call that never fails.
func (t *timed) wrap(call func() error) func() error {
	return func() error {
		began := time.Now()
		t.note(call(), began)
		return nil
	}
}

// note takes what came of a call that is to be counted from then on.
func (t *timed) note(err error, began time.Time) {
	if err != nil {
		t.fail(err)
		return
	}
	t.latencies.add(time.Since(began))
}

// observe is an observer of the middleware. Without it, a response that is not stored looks like one that is.
func (t *timed) observe(_ context.Context, e middleware.Event) {
	if e.Err == nil {
		return
	}
	reason := fmt.Errorf("%s: %w", e.Outcome, e.Err)
	t.reason.Store(&reason)
	if e.Status == http.StatusCreated {
		t.unstored.Add(1)
		t.fail(reason)
	}
}

func (t *timed) fail(err error) {
	t.failed.Add(1)
	t.last.Store(&err)
}

// failure returns what was wrong once, nil if nothing was.
func (t *timed) failure() error {
	for _, err := range []*error{t.reason.Load(), t.last.Load()} {
		if err != nil {
			return *err
		}
	}
	return nil
}
