package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// bodySize is how long the bodies of requests and responses are, in bytes.
const bodySize = 1024

// board is what is measured with one number of callers, on one Redis.
type board struct {
	cfg      config
	callers  int
	progress io.Writer

	conditions conditions
	seats      []seat
	failures   []string
}

// seat is a contender that is ready to be measured.
type seat struct {
	contender
	subject subject
}

// scores are what a round came to: by contender, without those that failed.
type scores map[string]score

type score struct {
	rate          float64 // answers in a second
	allocs, bytes float64 // for each answer
}

// column is what came of a board.
type column struct {
	callers  int
	place    placement
	redis    string // its version
	rounds   []scores
	failures []string
}

// play measures everything in every round.
func (b *board) play(ctx context.Context) (column, error) {
	s, err := startRedis(ctx)
	if err != nil {
		return column{}, err
	}
	defer s.stop()
	col := column{callers: b.callers, redis: s.version}
	if col.place, err = settle(b.callers, s.pid(), b.cfg.cores); err != nil {
		return column{}, err
	}
	b.conditions = conditions{
		addr: s.addr, store: newStore(s.addr), callers: b.callers, pool: b.callers, body: jsonOf(bodySize), http: b.cfg.http,
	}
	defer b.conditions.store.client.Close()
	defer b.clear()
	if err := b.fill(ctx); err != nil {
		return column{}, err
	}
	order := rand.New(rand.NewPCG(b.cfg.seed, uint64(b.callers)))
	for n := range b.cfg.rounds {
		fmt.Fprintf(b.progress, "%s: round %d of %d\n", plural(b.callers, "caller"), n+1, b.cfg.rounds)
		round := scores{}
		for _, i := range shuffled(b.seats, order) {
			b.score(ctx, i, round)
			if ctx.Err() != nil {
				return column{}, context.Cause(ctx)
			}
		}
		col.rounds = append(col.rounds, round)
	}
	col.failures = b.failures
	return col, nil
}

// fill sets up the contenders, each with a first measurement that does not count: it opens connections, loads scripts.
func (b *board) fill(ctx context.Context) error {
	for _, c := range contenders(b.cfg.http) {
		if b.callers < c.least || !b.cfg.only.MatchString(c.id()) {
			continue
		}
		s, err := c.setUp(ctx, b.conditions)
		if err != nil {
			return fmt.Errorf("%s: %w", c.id(), err)
		}
		b.seats = append(b.seats, seat{c, s})
		b.run(ctx, len(b.seats)-1, min(b.cfg.time, 200*time.Millisecond))
	}
	return ctx.Err()
}

// clear closes them.
func (b *board) clear() {
	for _, s := range b.seats {
		if err := s.subject.close(); err != nil {
			fmt.Fprintf(b.progress, "closing %s: %v\n", s.id(), err)
		}
	}
}

// score measures the contender of a seat for a round.
func (b *board) score(ctx context.Context, seat int, round scores) {
	r, ok := b.run(ctx, seat, b.cfg.time)
	if n := float64(r.total()); ok {
		round[b.seats[seat].id()] = score{
			rate: n / r.elapsed.Seconds(), allocs: float64(r.allocs) / n, bytes: float64(r.bytes) / n,
		}
	}
}

func (b *board) run(ctx context.Context, seat int, d time.Duration) (result, bool) {
	s := b.seats[seat]
	r, err := measure(ctx, s.subject, b.conditions, forTime(d))
	if err == nil {
		return r, true
	}
	b.failures = append(b.failures, fmt.Sprintf("%s, %s: %v", s.id(), plural(b.callers, "caller"), err))
	fmt.Fprintln(b.progress, "failed:", b.failures[len(b.failures)-1])
	return r, false
}

// shuffled returns an order of the seats in which the groups stay together: what is compared is measured within
// seconds.
func shuffled(seats []seat, order *rand.Rand) []int {
	byGroup := map[string][]int{}
	var names []string
	for i, s := range seats {
		if byGroup[s.group] == nil {
			names = append(names, s.group)
		}
		byGroup[s.group] = append(byGroup[s.group], i)
	}
	order.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var all []int
	for _, name := range names {
		group := byGroup[name]
		order.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		all = slices.Concat(all, group)
	}
	return all
}
