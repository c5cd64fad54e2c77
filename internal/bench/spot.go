package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// names are the keys that are stored, cut from one text: to draw one costs nothing.
type names string

func newNames(n int) names {
	text := make([]byte, 0, n*len(keyForm))
	k := keys{}
	for range n {
		text = append(text, k.fresh()...)
	}
	return names(text)
}

func (n names) at(i int) string { return string(n[i*len(keyForm):][:len(keyForm)]) }

// spot is a point of the curve, ready to be measured: a server, and two sites on it.
type spot struct {
	point
	names  names
	server *server
	place  placement
	store  store
	stored web              // has the keys that are replayed
	fresh  web              // has those of first requests, in another namespace
	marks  map[string]marks // by kind: first or replay
	timed                   // the measurement under way
}

// mark is what one measurement came to.
type mark struct {
	rate         float64       // right answers in a second
	p50, p99     time.Duration // of right answers
	bench, redis float64       // cores that bench and Redis used
	right        int           // answers
	failed       int           // wrong answers
	failure      error         // one of them
}

type marks []mark

const freshSpace = "fresh"

// openSpot starts the server, stores the keys and brings bench and server to their places.
func openSpot(ctx context.Context, p point, cfg curveConfig, n names) (*spot, error) {
	started, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	s := &spot{point: p, names: n, server: started, store: newStore(started.addr), marks: map[string]marks{}}
	if err := s.open(ctx, cfg); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *spot) open(ctx context.Context, cfg curveConfig) (err error) {
	if s.place, err = settle(s.callers, s.server.pid(), cfg.cores); err != nil {
		return err
	}
	body := jsonOf(s.body)
	if s.body == 0 {
		body = nil
	}
	c := conditions{addr: s.server.addr, store: s.store, callers: s.callers, pool: cfg.pool, body: body}
	observer := middleware.WithObserver(s.observe)
	if s.stored, err = newWeb(ctx, c, openOurs(observer), new(service)); err != nil {
		return err
	}
	if s.fresh, err = newWeb(ctx, c, openOursIn(freshSpace, observer), new(service)); err != nil {
		return err
	}
	return s.fill(ctx)
}

func (s *spot) close() {
	for _, w := range []web{s.stored, s.fresh} {
		if w.site != nil {
			_ = w.close() // the server is killed at once
		}
	}
	_ = s.store.client.Close()
	s.server.stop()
}

// fill stores the keys: as fast as that goes without a failure, with few long bodies at a time.
func (s *spot) fill(ctx context.Context) error {
	var next atomic.Int64
	caller := func(i int) func() error {
		v := s.stored.visitors[i]
		return func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return s.stored.post(v, s.names.at(int(next.Add(1)-1)), http.StatusCreated)
		}
	}
	if _, err := race(caller, min(s.callers, 64, max(1, 4<<20/max(1, s.body))), forCount(s.keys)); err != nil {
		return err
	}
	if err := s.failure(); err != nil {
		return err
	}
	return s.store.wantKeys(ctx, s.keys)
}

// caller returns what each does again and again.
func (s *spot) caller(kind string, i int) func() error {
	if kind == first {
		v, keys := s.fresh.visitors[i], &s.fresh.keys[i]
		return func() error { return s.fresh.post(v, keys.fresh(), http.StatusCreated) }
	}
	v, n := s.stored.visitors[i], s.keys
	return func() error { return s.stored.post(v, s.names.at(rand.IntN(n)), http.StatusCreated) }
}

// measure is an error if not everything was done that was answered. Wrong answers are none.
func (s *spot) measure(ctx context.Context, kind string, d time.Duration) (mark, error) {
	replayRuns, freshRuns := s.stored.service.runs.Load(), s.fresh.service.runs.Load()
	var m meter
	s.reset()
	r, err := race(
		func(i int) func() error { return s.wrap(s.caller(kind, i)) },
		s.callers,
		func() func(int) bool { m.begin(ctx, s.store); return forTime(d)() },
	)
	if err != nil {
		return mark{}, err
	}
	bench, redis, err := m.end(ctx, s.store)
	if err != nil {
		return mark{}, err
	}
	times := s.latencies.take()
	right := int(times.total() - s.unstored.Load())
	if ran := s.stored.service.runs.Load() - replayRuns; ran != 0 {
		return mark{}, fmt.Errorf("%d stored requests ran again", ran)
	}
	if kind == first {
		if err := s.sweep(ctx, right, int(s.fresh.service.runs.Load()-freshRuns)); err != nil {
			return mark{}, err
		}
	}
	return mark{
		rate: float64(right) / r.elapsed.Seconds(), p50: times.quantile(0.5), p99: times.quantile(0.99),
		bench: bench / r.elapsed.Seconds(), redis: redis / r.elapsed.Seconds(),
		right: right, failed: int(s.failed.Load()), failure: s.failure(),
	}, nil
}

// sweep deletes what first requests have left. It is an error if that is less than was answered.
func (s *spot) sweep(ctx context.Context, right, runs int) error {
	deleted, err := s.store.deleteAll(ctx, freshSpace+":*")
	if err == nil && (runs < right || deleted < right) {
		return fmt.Errorf("%d first requests were answered, but %d ran, and %d were stored", right, runs, deleted)
	}
	return err
}

// deleteAll returns how many keys there were.
func (s store) deleteAll(ctx context.Context, pattern string) (int, error) {
	deleted := 0
	for cursor := uint64(0); ; {
		found, next, err := s.client.Scan(ctx, cursor, pattern, 10_000).Result()
		if err != nil {
			return deleted, err
		}
		if len(found) > 0 {
			n, err := s.client.Del(ctx, found...).Result()
			if err != nil {
				return deleted, err
			}
			deleted += int(n)
		}
		if cursor = next; cursor == 0 {
			return deleted, nil
		}
	}
}
