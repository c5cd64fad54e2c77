package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// soakConfig is what the flags of the soak say.
type soakConfig struct {
	length    time.Duration
	every     time.Duration
	max       time.Duration // how long the maximum is measured
	share     float64       // of the maximum
	retention time.Duration
	callers   int
	pool      int
	flags     []string // as they were given
	cores     []int    // to pin bench and Redis to; none: they are not
}

// soak prints a row for every minute, and then what has changed.
func soak(ctx context.Context, args []string, out, progress io.Writer) error {
	cfg, err := parseSoak(args, progress)
	if err != nil {
		return err
	}
	cfg.cores = coresToPin(progress)
	return runSoak(ctx, cfg, out, progress)
}

func parseSoak(args []string, out io.Writer) (soakConfig, error) {
	cfg := soakConfig{flags: append([]string{"soak"}, args...)}
	flags := newFlags("bench soak", out)
	flags.DurationVar(&cfg.length, "for", 20*time.Minute, "how long it takes")
	flags.DurationVar(&cfg.every, "every", time.Minute, "how long a row stands for")
	flags.DurationVar(&cfg.max, "max", 10*time.Second, "how long the maximum is measured")
	flags.Float64Var(&cfg.share, "share", 0.5, "of the maximum")
	flags.DurationVar(&cfg.retention, "retention", 10*time.Second, "how long responses are stored")
	flags.IntVar(&cfg.callers, "callers", 64, "number of concurrent callers")
	flags.IntVar(&cfg.pool, "pool", 100, "connections that the client of Redis may have")
	return cfg, flags.parse(args, func() bool {
		return cfg.length >= cfg.every && cfg.every > 0 && cfg.max > 0 && cfg.share > 0 && cfg.share <= 1 &&
			cfg.retention >= 100*time.Millisecond && cfg.callers >= 1 && cfg.pool >= 1
	})
}

// runSoak is an error if an answer was wrong. What is not level is no error, but is said.
func runSoak(ctx context.Context, cfg soakConfig, out, progress io.Writer) error {
	about := aboutMachine(ctx)
	s, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	place, err := settle(max(2, cfg.callers), s.pid(), cfg.cores)
	if err != nil {
		return err
	}
	m := openMix(conditions{
		addr: s.addr, store: newStore(s.addr), callers: cfg.callers, pool: cfg.pool, body: jsonOf(bodySize),
	}, cfg.retention)
	defer m.store.client.Close()
	run, end := context.WithCancel(ctx)
	holders := m.hold(run)
	defer func() {
		end()
		holders.Wait()
		_ = m.close() // the server is killed at once
	}()

	fmt.Fprintf(progress, "measuring the maximum for %v\n", cfg.max)
	r, err := race(m.caller, cfg.callers, forTime(cfg.max))
	if err != nil {
		return err
	}
	most := float64(r.total()) / r.elapsed.Seconds()
	about.head(out, "in process", s.version, cfg.flags)
	fmt.Fprintf(out, "- %s, bodies of %s; the most they got: %.0f answers a second; they ask for %.0f\n",
		plural(cfg.callers, "caller"), size(bodySize), most, most*cfg.share)
	fmt.Fprintf(out, "- Retention of %v; a pool of %s; %v\n\n", cfg.retention, plural(cfg.pool, "connection"), place)

	callers := pace(run, cfg.callers, most*cfg.share, m.caller, m.note)
	w := watch{mix: m, out: out, began: time.Now()}
	err = w.run(ctx, cfg)
	end()
	callers.Wait()
	if err != nil {
		return err
	}
	w.verdict()
	return m.verify()
}

// pace lets the callers ask so often in a second, all together, until ctx ends: each by a schedule of its own. What
// came of it is noted with the time that the schedule says. Who is late asks at once.
func pace(
	ctx context.Context, callers int, rate float64, caller func(number int) func() error, note func(error, time.Time),
) *sync.WaitGroup {
	interval := time.Duration(float64(callers) / rate * float64(time.Second))
	start := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ask := caller(i)
			next := start.Add(interval * time.Duration(i) / time.Duration(callers))
			for ; ctx.Err() == nil; next = next.Add(interval) {
				time.Sleep(time.Until(next))
				note(ask(), next)
			}
		})
	}
	return &all
}
