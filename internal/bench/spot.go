// One point of the curve, with its own server.

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// freshDB is the database in Redis of first requests.
const freshDB = 1

// spot is a point that is ready to be measured: a server and two sites on it.
type spot struct {
	point
	names  string // the stored keys, cut from one text: drawing one costs nothing
	server *server
	stored *web              // has the keys that are replayed
	fresh  *web              // has those of first requests, in freshDB
	marks  map[string][]mark // by kind: first or replay
	tally  *tally
}

// mark is what one measurement came to.
type mark struct {
	counts
	elapsed      time.Duration
	bench, redis float64 // cores that each used
}

// rate returns the right answers in a second.
func (m mark) rate() float64 { return float64(m.right()) / m.elapsed.Seconds() }

// openSpot starts the server and stores the keys through the middleware.
func openSpot(ctx context.Context, p point, cores cores, names string) (*spot, error) {
	server, err := startRedis(ctx, cores.redis(p.callers))
	if err != nil {
		return nil, err
	}
	s := &spot{point: p, names: names, server: server, marks: map[string][]mark{}, tally: newTally()}
	c := conditions{server: server, callers: p.callers, pool: poolSize, body: jsonOf(p.body)}
	observer := middleware.WithObserver(s.tally.observe)
	s.stored, _ = newWeb(ctx, c, openOurs(observer)) // never fails
	c.db = freshDB
	s.fresh, _ = newWeb(ctx, c, openOurs(observer))
	if err := s.fill(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ignores errors: nobody uses the server any more.
func (s *spot) close() {
	_ = errors.Join(s.stored.close(), s.fresh.close(), s.server.stop())
}

// name returns a stored key.
func (s *spot) name(i int) string { return s.names[i*keyLength:][:keyLength] }

// fill stores the keys, with no more callers than can be served in time: few if bodies are long.
func (s *spot) fill(ctx context.Context) error {
	var next atomic.Int64
	caller := func(i int) func() error {
		store := s.stored.repeat(i, func() string { return s.name(int(next.Add(1) - 1)) }, http.StatusCreated)
		return func() error { return errors.Join(ctx.Err(), store()) }
	}
	callers := min(s.callers, 64, max(1, 4<<20/max(1, s.body)))
	if _, err := race(caller, callers, limit{answers: s.keys}); err != nil {
		return err
	}
	if failure := s.tally.take().failure; failure != nil {
		return failure
	}
	return s.server.wantKeys(ctx, s.keys)
}

// caller returns what caller i repeats. Wrong answers are counted, and the caller goes on.
func (s *spot) caller(kind string, i int) func() error {
	call := s.fresh.repeat(i, s.fresh.keys[i].fresh, http.StatusCreated)
	if kind == replay {
		call = s.stored.repeat(i, func() string { return s.name(rand.IntN(s.keys)) }, http.StatusCreated)
	}
	return func() error {
		began := time.Now()
		s.tally.note(call(), began)
		return nil
	}
}

// measure returns an error if answers looked right but were not earned. Wrong answers are in the mark.
func (s *spot) measure(ctx context.Context, kind string, d time.Duration) (mark, error) {
	s.stored.service.runs.Store(0)
	s.fresh.service.runs.Store(0)
	s.tally.take()
	before := s.server.cpu(ctx)
	r, err := race(func(i int) func() error { return s.caller(kind, i) }, s.callers, limit{time: d})
	if err != nil {
		return mark{}, err
	}
	m := mark{
		counts: s.tally.take(), elapsed: r.elapsed,
		bench: r.cpu.Seconds() / r.elapsed.Seconds(), redis: (s.server.cpu(ctx) - before) / r.elapsed.Seconds(),
	}
	if n := s.stored.service.runs.Load(); n != 0 {
		return mark{}, fmt.Errorf("%d stored requests ran again", n)
	}
	if kind == replay {
		return m, nil
	}
	stored, err := s.server.sweep(ctx, freshDB)
	runs, right := s.fresh.service.runs.Load(), int64(m.right())
	if err == nil && (runs < right || stored < right) {
		err = fmt.Errorf("%d first requests were answered, but %d ran and %d were stored", right, runs, stored)
	}
	return m, err
}
