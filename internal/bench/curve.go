// The curve: first requests and replays while one of three dimensions varies.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	poolSize    = 100      // connections of a Redis client: go-redis's default on ten cores
	storedBytes = 64 << 20 // the most that is stored where bodies vary
)

// point is where a measurement is taken.
type point struct {
	callers int
	keys    int // that are stored
	body    int // bytes
}

func (p point) String() string {
	return fmt.Sprintf("%s, %s, bodies of %s", plural(p.callers, "caller"), plural(p.keys, "stored key"), size(p.body))
}

// dimension is what varies. Everything else is as in the base.
type dimension struct {
	name, title string // name is that of the plot's file
	steps       []step
}

// step is a point of a dimension.
type step struct {
	point
	value int
	label string
}

// curveConfig is what the flag sets, and what tests shorten.
type curveConfig struct {
	base                  point
	callers, keys, bodies []int
	rounds                int
	time                  time.Duration // of one measurement
	svg                   string        // the directory of the plots; empty: none are drawn
}

func parseCurve(s session) (curveConfig, error) {
	cfg := curveConfig{
		base:    point{callers: 64, keys: 10_000, body: bodySize},
		callers: []int{1, 4, 16, 64, 256, 1000, 2500, 10_000},
		keys:    []int{1, 100, 10_000, 100_000, 1_000_000},
		bodies:  []int{0, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20},
		rounds:  9, time: time.Second,
	}
	flags := flag.NewFlagSet("bench curve", flag.ContinueOnError)
	flags.StringVar(&cfg.svg, "svg", "", "the directory for the plots (default none are drawn)")
	return cfg, parseFlags(flags, s)
}

func (cfg curveConfig) dimensions() []dimension {
	vary := func(values []int, label func(int) string, set func(*point, int)) (steps []step) {
		for _, value := range values {
			s := step{cfg.base, value, label(value)}
			set(&s.point, value)
			steps = append(steps, s)
		}
		return steps
	}
	return []dimension{
		{"callers", "Concurrent callers", vary(cfg.callers, short, func(p *point, n int) { p.callers = n })},
		{"keys", "Stored keys", vary(cfg.keys, short, func(p *point, n int) { p.keys = n })},
		{"bodies", "Length of the bodies", vary(cfg.bodies, size, func(p *point, n int) {
			p.body, p.keys = n, min(p.keys, storedBytes/max(1, n))
		})},
	}
}

// curve measures, writes the tables and draws the plots.
func curve(ctx context.Context, s session, cfg curveConfig) error {
	if cfg.svg != "" { // an error comes before the measurements
		if err := os.MkdirAll(cfg.svg, 0o755); err != nil {
			return err
		}
	}
	head := about(ctx)
	spots := map[point]*spot{}
	defer func() {
		for _, spot := range spots {
			spot.close()
		}
	}()
	names := keyText(0, 0, max(slices.Max(cfg.keys), cfg.base.keys))
	for _, d := range cfg.dimensions() {
		for _, step := range d.steps {
			if spots[step.point] != nil { // it is in several dimensions
				continue
			}
			fmt.Fprintf(s.progress, "filling: %v\n", step.point)
			spot, err := openSpot(ctx, step.point, s.cores, names)
			if err != nil {
				return fmt.Errorf("%v: %w", step.point, err)
			}
			spots[step.point] = spot
		}
	}
	if err := measureSpots(ctx, s, cfg, spots); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s- %s of %v; medians (and quartiles); a pool of %d connections; base: %v\n",
		head, plural(cfg.rounds, "round"), cfg.time, poolSize, cfg.base)
	fmt.Fprintf(s.out, "- 1 caller: %s; more: %s\n", s.cores.describe(1), s.cores.describe(2))
	for _, d := range cfg.dimensions() {
		writeDimension(s.out, d, spots)
		if cfg.svg == "" {
			continue
		}
		if err := drawPlot(filepath.Join(cfg.svg, d.name+".svg"), d, spots); err != nil {
			return err
		}
	}
	return nil
}

// measureSpots measures everything in every round, the spots in a random order. A round before, which does not count, opens
// connections and loads scripts.
func measureSpots(ctx context.Context, s session, cfg curveConfig, spots map[point]*spot) error {
	order := slices.Collect(maps.Values(spots))
	for round := range cfg.rounds + 1 {
		d := cfg.time
		if round == 0 {
			d = min(d, 200*time.Millisecond)
		}
		fmt.Fprintf(s.progress, "round %d of %d\n", round, cfg.rounds)
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, spot := range order {
			for _, kind := range kinds {
				m, err := spot.measure(ctx, kind.name, d)
				if err = errors.Join(err, context.Cause(ctx)); err != nil {
					return fmt.Errorf("%s, %v: %w", kind.name, spot.point, err)
				}
				if round > 0 {
					spot.marks[kind.name] = append(spot.marks[kind.name], m)
				}
			}
		}
	}
	return nil
}

// writeDimension writes a table for first requests and one for replays.
func writeDimension(w io.Writer, d dimension, spots map[point]*spot) {
	for _, kind := range kinds {
		fmt.Fprintf(w, "\n### %s: %s\n", d.title, kind.title)
		tableHead(w, "", "answers a second", "p50", "p99", "CPU, bench + Redis", "errors")
		for _, step := range d.steps {
			label := step.label
			if d.name == "bodies" {
				label += ", " + plural(step.keys, "key") + " stored"
			}
			tableRow(w, append([]string{label}, cells(spots[step.point].marks[kind.name])...)...)
		}
	}
}

// cells returns medians, and the errors of all rounds with the last reason.
func cells(marks []mark) []string {
	median := func(property func(mark) float64) float64 { return of(marks, property).median }
	latency := func(q float64) string {
		return digits(time.Duration(median(func(m mark) float64 { return float64(m.quantile(q)) })))
	}
	bench, redis := median(func(m mark) float64 { return m.bench }), median(func(m mark) float64 { return m.redis })
	failed, all, reason := 0, 0, ""
	for _, m := range marks {
		failed, all = failed+m.failed, all+m.failed+m.right()
		if m.failure != nil {
			reason = fmt.Sprintf(": %.120v", m.failure)
		}
	}
	return []string{
		of(marks, mark.rate).format("%.0f"), latency(50), latency(99),
		fmt.Sprintf("%.2f + %.2f", bench, redis), fmt.Sprintf("%d of %d%s", failed, all, reason),
	}
}
