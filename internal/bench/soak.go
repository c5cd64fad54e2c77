// The soak: half of the maximum for a long time, and what has changed at the end.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"
)

// soakConfig is what tests shorten.
type soakConfig struct {
	length, every time.Duration
	share         float64 // of the maximum
	callers       int
	max           time.Duration // how long the maximum is measured
	retention     time.Duration
}

func parseSoak(s session) (soakConfig, error) {
	cfg := soakConfig{
		length: 20 * time.Minute, every: time.Minute, share: 0.5, callers: 64, max: 10 * time.Second, retention: 10 * time.Second,
	}
	return cfg, parseFlags(flag.NewFlagSet("bench soak", flag.ContinueOnError), s)
}

// soak measures the maximum, and then writes the table of a load below it. A wrong answer is an error. A value that rose or
// fell is none.
func soak(ctx context.Context, s session, cfg soakConfig) error {
	head := about(ctx)
	requests := cfg.callers + heldKeys // at the same time
	server, err := startRedis(ctx, s.cores.redis(requests))
	if err != nil {
		return err
	}
	defer server.stop()
	m := newMix(conditions{server: server, callers: cfg.callers, pool: poolSize, body: jsonOf(bodySize)}, cfg.retention)
	run, end := context.WithCancel(ctx)
	holders := m.hold(run)
	defer func() {
		end()
		holders.Wait()
		_ = m.close() // the server is stopped next
	}()

	fmt.Fprintf(s.progress, "measuring the maximum for %v\n", cfg.max)
	r, err := race(m.caller, cfg.callers, limit{time: cfg.max})
	if err != nil {
		return err
	}
	rate := r.rate() * cfg.share
	fmt.Fprintf(s.out, "%s- %s, bodies of %s; the maximum: %.0f answers a second; sent: %.0f\n",
		head, plural(cfg.callers, "caller"), size(bodySize), r.rate(), rate)
	fmt.Fprintf(s.out, "- Retention of %v; a pool of %d connections; %s\n", cfg.retention, poolSize, s.cores.describe(requests))

	paced := pace(run, cfg.callers, rate, m.caller, m.tally.note)
	w := watch{mix: m, out: s.out}
	err = w.run(ctx, cfg)
	end()
	paced.Wait()
	if err != nil {
		return err
	}
	w.verdict()
	return errors.Join(w.failure, m.tally.take().failure, m.verify())
}
