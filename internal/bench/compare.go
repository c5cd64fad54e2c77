// The comparison: the contenders of a suite measured round by round, for each number of callers on a separate Redis.

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// compareConfig is what the flags set.
type compareConfig struct {
	rounds  int
	time    time.Duration // of one measurement
	callers []int
	beside  string // a program; may be empty
}

// parseRounds parses the flags of the command with that name. cfg has the defaults.
func parseRounds(s session, name string, cfg compareConfig) (compareConfig, error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.IntVar(&cfg.rounds, "rounds", cfg.rounds, "how often everything is measured")
	flags.DurationVar(&cfg.time, "time", cfg.time, "how long one measurement takes")
	if name == httpCommand {
		flags.StringVar(&cfg.beside, "beside", "", "another build of this `program`, whose onceguard is measured as well")
	}
	flags.Func("callers", fmt.Sprintf("how many there are, in turn (default %v)", cfg.callers), func(list string) (err error) {
		cfg.callers = nil
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return errors.New("want numbers with commas between them")
			}
			cfg.callers = append(cfg.callers, n)
		}
		return nil
	})
	flags.SetOutput(s.progress)
	err := flags.Parse(s.args)
	if err == nil && (flags.NArg() > 0 || cfg.rounds < 1 || cfg.time <= 0) {
		err = errors.New("takes flags only; -rounds and -time must be more than 0")
	}
	return cfg, err
}

// compare measures in process, and writes the tables.
func compare(ctx context.Context, s session) error {
	defaults := compareConfig{rounds: 15, time: 400 * time.Millisecond, callers: []int{1, 16, 64, 256}}
	cfg, err := parseRounds(s, "bench", defaults)
	if err != nil {
		return err
	}
	return compareSuite(ctx, s, cfg, comparisonSuite())
}

// compareSuite measures a suite without a database.
func compareSuite(ctx context.Context, s session, cfg compareConfig, suite suite) error {
	head := about(ctx)
	columns, err := measureColumns(ctx, s, cfg, suite, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s- %s of %v; medians (and quartiles); bodies of %s; pools as large as the number of callers\n",
		head, plural(cfg.rounds, "round"), cfg.time, "1 KiB")
	for _, c := range columns {
		fmt.Fprintf(s.out, "- %s: %s\n", plural(c.callers, "caller"), s.cores.describe(c.callers))
	}
	suite.writeTables(s.out, columns)
	return nil
}

// measureColumns measures the suite for each number of callers. d is nil if the suite needs none.
func measureColumns(ctx context.Context, s session, cfg compareConfig, suite suite, d *database) ([]column, error) {
	var columns []column
	for _, callers := range cfg.callers {
		b := board{
			cfg: cfg, session: s, suite: suite, conditions: conditions{database: d},
			column: column{title: plural(callers, "caller"), callers: callers},
		}
		if d != nil {
			b.title = d.name + ", " + b.title
		}
		if err := b.play(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", b.title, err)
		}
		columns = append(columns, b.column)
	}
	return columns, nil
}

// column is what all rounds with one number of callers, and on one database if the suite needs any, came to.
type column struct {
	title   string
	callers int
	rounds  []scores
}

// scores are what one round came to: answers in a second, by the id of the contender.
type scores map[string]float64

// board measures a column.
type board struct {
	column
	session
	suite
	cfg        compareConfig
	conditions conditions  // at first the database alone
	ready      []contender // that are set up
}

// play measures everything in every round.
func (b *board) play(ctx context.Context) error {
	s, err := startRedis(ctx, b.cores.redis(b.callers))
	if err != nil {
		return err
	}
	defer s.stop()
	b.conditions = conditions{
		server: s, database: b.conditions.database, callers: b.callers, pool: b.callers, body: jsonOf(bodySize),
		core: b.cores.first,
	}
	defer func() {
		for _, c := range b.ready {
			_ = c.close() // the server is stopped next
		}
	}()
	if err := b.fill(ctx); err != nil {
		return err
	}
	for n := range b.cfg.rounds {
		fmt.Fprintf(b.progress, "%s: round %d of %d\n", b.title, n+1, b.cfg.rounds)
		round := scores{}
		for _, c := range shuffled(b.ready) {
			if err := b.measure(ctx, c, b.cfg.time, round); err != nil {
				return err
			}
		}
		b.rounds = append(b.rounds, round)
	}
	return nil
}

// fill sets up the contenders. Each has a first measurement that does not count: it opens connections and loads
// scripts.
func (b *board) fill(ctx context.Context) error {
	for _, c := range b.contenders {
		var err error
		if c.subject, err = c.setUp(ctx, b.conditions); err != nil {
			return fmt.Errorf("%s: %w", c.id(), err)
		}
		b.ready = append(b.ready, c)
		if err := b.measure(ctx, c, min(3*b.cfg.time, b.warmUp), scores{}); err != nil {
			return err
		}
	}
	return nil
}

// measure adds the score of a contender to the round.
func (b *board) measure(ctx context.Context, c contender, d time.Duration, round scores) error {
	r, err := measure(ctx, c.subject, b.conditions, d)
	if err = cmp.Or(err, context.Cause(ctx)); err != nil {
		return fmt.Errorf("%s: %w", c.id(), err)
	}
	round[c.id()] = r.rate()
	return nil
}

// shuffled returns the contenders in a random order in which groups stay together, so that what is compared is measured
// within seconds.
func shuffled(contenders []contender) []contender {
	order := slices.Clone(contenders)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	place := map[string]int{} // of each group: that of its first contender
	for i, c := range order {
		if _, ok := place[c.group]; !ok {
			place[c.group] = i
		}
	}
	slices.SortStableFunc(order, func(a, b contender) int { return cmp.Compare(place[a.group], place[b.group]) })
	return order
}
