package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// mix is requests of all kinds at the same time.
type mix struct {
	conditions
	timed
	once      func(http.Handler) http.Handler
	close     func() error
	quick     service      // what callers ask for
	firsts    atomic.Int64 // right answers to first requests
	retention time.Duration

	slow  service // what is in flight all the while
	held  [heldKeys]atomic.Pointer[string]
	asked []*asked // by caller
}

const (
	heldKeys   = 8
	recentKeys = 256
)

// asked is what a caller remembers.
type asked struct {
	fresh  keys
	recent [recentKeys]recentKey // the latest of those who have a stored response, in a ring
	stored int
}

type recentKey struct {
	key  string
	when time.Time
}

func openMix(c conditions, retention time.Duration) *mix {
	m := &mix{conditions: c, retention: retention}
	m.once, m.close = protect(c, "bench", middleware.WithRetention(retention), middleware.WithObserver(m.observe))
	m.quick.body, m.slow.body = c.body, c.body
	m.slow.delay = retention / 2
	for i := range c.callers {
		m.asked = append(m.asked, &asked{fresh: keys{caller: i}})
	}
	return m
}

// hold keeps requests in flight, until ctx ends and they have been answered.
func (m *mix) hold(ctx context.Context) *sync.WaitGroup {
	var holders sync.WaitGroup
	for i := range m.held {
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			m.held[i].Store(&key)
			m.slow.ServeHTTP(w, r)
			m.held[i].Store(nil)
		})
		c, k := newCall(m.once(slow), m.body), keys{caller: m.callers + i}
		holders.Go(func() {
			for ctx.Err() == nil {
				if err := m.post(c, k.fresh(), http.StatusCreated); err != nil {
					m.fail(fmt.Errorf("one that was in flight: %w", err))
				}
			}
		})
	}
	return &holders
}

// caller returns what a caller asks again and again, each time something else.
func (m *mix) caller(i int) func() error {
	quick, a := m.once(&m.quick), m.asked[i]
	usual, other := newCall(quick, m.body), newCall(quick, jsonOf(len(m.body)-1))
	return func() error {
		kind := rand.IntN(100)
		key, known := a.pick(m.retention / 2)
		held := m.held[rand.IntN(heldKeys)].Load()
		switch {
		case kind < 40 && known:
			return m.post(usual, key, http.StatusCreated)
		case kind < 45 && known:
			return m.post(other, key, http.StatusUnprocessableEntity)
		case kind < 50 && held != nil:
			// It may have been answered meanwhile.
			return m.post(usual, *held, http.StatusConflict, http.StatusCreated)
		}
		key = a.fresh.fresh()
		err := m.post(usual, key, http.StatusCreated)
		if err == nil {
			m.firsts.Add(1)
			a.keep(key)
		}
		return err
	}
}

// pick returns one of the recent keys, unless it is so old that its response may be gone.
func (a *asked) pick(old time.Duration) (key string, ok bool) {
	if a.stored == 0 {
		return "", false
	}
	r := a.recent[rand.IntN(min(a.stored, recentKeys))]
	return r.key, time.Since(r.when) < old
}

func (a *asked) keep(key string) {
	a.recent[a.stored%recentKeys] = recentKey{key, time.Now()}
	a.stored++
}

// post is an error unless the answer has one of those statuses, and the handler's body if it is its own.
func (m *mix) post(c *call, key string, want ...int) error {
	status, body, err := c.post(key)
	switch {
	case err != nil:
		return err
	case !slices.Contains(want, status):
		return fmt.Errorf("status %d, want %d: %.200s", status, want, body)
	case status == http.StatusCreated && !bytes.Equal(body, m.body):
		return fmt.Errorf("a body of %d bytes that is not the handler's", len(body))
	}
	return nil
}

// verify is an error if an answer was wrong, or anything but a first request has run.
func (m *mix) verify() error {
	if n := m.failed.Load(); n > 0 {
		return fmt.Errorf("%d wrong answers, one of them: %w", n, m.failure())
	}
	if runs, firsts := m.quick.runs.Load(), m.firsts.Load(); runs != firsts {
		return fmt.Errorf("the handler ran %d times for %d first requests", runs, firsts)
	}
	return nil
}
