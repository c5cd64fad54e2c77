// The load of the soak: requests of all kinds at the same time.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

const (
	heldKeys   = 8   // requests that are in flight all the time
	recentKeys = 256 // completed requests that each caller repeats
)

// mix is a handler under onceguard with its callers.
type mix struct {
	conditions
	retention time.Duration
	protect   func(http.Handler) http.Handler
	close     func() error
	quick     service      // what callers request
	slow      service      // what is in flight
	firsts    atomic.Int64 // right answers to first requests
	held      [heldKeys]atomic.Pointer[string]
	callers   []caller
	tally     *tally
}

// caller is what a caller remembers.
type caller struct {
	fresh  keys
	stored int // how many requests were completed
	recent [recentKeys]struct {
		key  string
		when time.Time
	} // the latest of these, as a ring
}

func newMix(c conditions, retention time.Duration) *mix {
	m := &mix{conditions: c, retention: retention, callers: make([]caller, c.callers), tally: newTally()}
	m.protect, m.close = protection(c, middleware.WithRetention(retention), middleware.WithObserver(m.tally.observe))
	m.quick.body, m.slow.body = c.body, c.body
	m.slow.delay = retention / 2
	for i := range m.callers {
		m.callers[i].fresh.caller = i
	}
	return m
}

// hold keeps requests in flight until ctx ends and the last ones have been answered.
func (m *mix) hold(ctx context.Context) *sync.WaitGroup {
	var holders sync.WaitGroup
	for i := range m.held {
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get(idempotencyKey)
			m.held[i].Store(&key)
			m.slow.ServeHTTP(w, r)
			m.held[i].Store(nil)
		})
		visit, k := newCall(m.protect(slow), m.body).visit, keys{caller: len(m.callers) + i}
		holders.Go(func() {
			for ctx.Err() == nil {
				if err := post(visit, k.fresh(), m.body, http.StatusCreated); err != nil {
					m.tally.note(fmt.Errorf("one that was in flight: %w", err), time.Now())
				}
			}
		})
	}
	return &holders
}

// caller returns what caller i repeats: half of its requests are first ones, four in ten are replays, and the rest are
// other requests with a used key and duplicates in flight.
func (m *mix) caller(i int) func() error {
	quick, c := m.protect(&m.quick), &m.callers[i]
	usual, other := newCall(quick, m.body).visit, newCall(quick, jsonOf(len(m.body)-1)).visit
	return func() error {
		kind := rand.IntN(100)
		key, known := c.pick(m.retention / 2)
		held := m.held[rand.IntN(heldKeys)].Load()
		switch {
		case kind < 40 && known:
			return post(usual, key, m.body, http.StatusCreated)
		case kind < 45 && known:
			return post(other, key, m.body, http.StatusUnprocessableEntity)
		case kind < 50 && held != nil:
			// The first one may have been answered in between.
			return post(usual, *held, m.body, http.StatusConflict, http.StatusCreated)
		}
		key = c.fresh.fresh()
		err := post(usual, key, m.body, http.StatusCreated)
		if err == nil {
			m.firsts.Add(1)
			r := &c.recent[c.stored%recentKeys]
			r.key, r.when = key, time.Now()
			c.stored++
		}
		return err
	}
}

// pick returns one of the recent keys, unless it is so old that its response may have expired.
func (c *caller) pick(old time.Duration) (key string, ok bool) {
	if c.stored == 0 {
		return "", false
	}
	r := c.recent[rand.IntN(min(c.stored, recentKeys))]
	return r.key, time.Since(r.when) < old
}

// verify returns an error unless the handler ran once for each first request.
func (m *mix) verify() error {
	if runs, firsts := m.quick.runs.Load(), m.firsts.Load(); runs != firsts {
		return fmt.Errorf("the handler ran %d times for %d first requests", runs, firsts)
	}
	return nil
}

// pace lets the callers send so many requests in a second, all together, until ctx ends, each by its own schedule. A
// latency counts from the scheduled time. A caller that is late sends at once.
func pace(
	ctx context.Context, callers int, rate float64, caller func(i int) func() error, note func(error, time.Time),
) *sync.WaitGroup {
	interval := time.Duration(float64(callers) / rate * float64(time.Second))
	start := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			call := caller(i)
			next := start.Add(interval * time.Duration(i) / time.Duration(callers))
			for ; ctx.Err() == nil; next = next.Add(interval) {
				time.Sleep(time.Until(next))
				note(call(), next)
			}
		})
	}
	return &all
}
