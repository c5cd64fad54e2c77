package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// point is what a measurement of the curve is taken at.
type point struct {
	callers int
	keys    int // that are stored
	body    int // bytes
}

const (
	storedBytes = 64 << 20 // bounds what is stored where bodies are varied
	maxBody     = 1 << 20  // is what the middleware takes
)

func (p point) String() string {
	return fmt.Sprintf("%s, %s, bodies of %s", plural(p.callers, "caller"), plural(p.keys, "stored key"), size(p.body))
}

// dimension is what is varied, while the rest is as in the base.
type dimension struct {
	name   string // of its plot's file
	title  string
	points []point
	value  func(point) int
	label  func(int) string
}

// curveConfig is what the flags of the curve say.
type curveConfig struct {
	base    point
	callers []int
	keys    []int
	bodies  []int
	rounds  int
	time    time.Duration // of one measurement
	pool    int
	svg     string // the directory of the plots, or none
	seed    uint64
	flags   []string // as they were given
	cores   []int    // to pin bench and Redis to; none: they are not
}

// curve prints the tables of the curve, and draws its plots.
func curve(ctx context.Context, args []string, out, progress io.Writer) error {
	cfg, err := parseCurve(args, progress)
	if err != nil {
		return err
	}
	cfg.cores = coresToPin(progress)
	return runCurve(ctx, cfg, out, progress)
}

func parseCurve(args []string, out io.Writer) (curveConfig, error) {
	cfg := curveConfig{
		base:    point{callers: 64, keys: 10_000, body: 1 << 10},
		callers: []int{1, 4, 16, 64, 256, 1000, 2500, 10_000},
		keys:    []int{1, 100, 10_000, 100_000, 1_000_000},
		bodies:  []int{0, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20},
		flags:   append([]string{"curve"}, args...),
	}
	flags := newFlags("bench curve", out)
	flags.IntVar(&cfg.rounds, "rounds", 9, "how often everything is measured")
	flags.DurationVar(&cfg.time, "time", time.Second, "how long one measurement takes")
	flags.IntVar(&cfg.pool, "pool", 100, "connections that the client of Redis may have")
	flags.StringVar(&cfg.svg, "svg", "", "the directory into which the plots are written (default none are)")
	flags.Uint64Var(&cfg.seed, "seed", uint64(time.Now().UnixNano()), "of the order; the default is another one each time")
	list := func(name, usage string, least int, to *[]int) {
		flags.Func(name, fmt.Sprintf("%s (default %v)", usage, *to), func(list string) (err error) {
			*to, err = numbers(list, least)
			return err
		})
	}
	list("callers", "numbers of concurrent callers", 1, &cfg.callers)
	list("keys", "numbers of stored keys", 1, &cfg.keys)
	list("bodies", "bytes of a body, up to the middleware's limit of 1 MiB", 0, &cfg.bodies)
	return cfg, flags.parse(args, func() bool {
		return cfg.rounds >= 1 && cfg.time > 0 && cfg.pool >= 1 && slices.Max(cfg.bodies) <= maxBody
	})
}

func (cfg curveConfig) dimensions() []dimension {
	vary := func(values []int, set func(*point, int)) (points []point) {
		for _, value := range values {
			p := cfg.base
			set(&p, value)
			points = append(points, p)
		}
		return points
	}
	return []dimension{
		{
			name: "callers", title: "Concurrent callers",
			points: vary(cfg.callers, func(p *point, n int) { p.callers = n }),
			value:  func(p point) int { return p.callers }, label: short,
		},
		{
			name: "keys", title: "Stored keys",
			points: vary(cfg.keys, func(p *point, n int) { p.keys = n }),
			value:  func(p point) int { return p.keys }, label: short,
		},
		{
			name: "bodies", title: "Length of the bodies",
			points: vary(cfg.bodies, func(p *point, n int) { p.body, p.keys = n, min(p.keys, storedBytes/max(1, n)) }),
			value:  func(p point) int { return p.body }, label: size,
		},
	}
}

// runCurve measures, and writes the tables to out and how far it is to progress.
func runCurve(ctx context.Context, cfg curveConfig, out, progress io.Writer) error {
	if cfg.svg != "" { // found out now, not at the end
		if err := os.MkdirAll(cfg.svg, 0o755); err != nil {
			return err
		}
	}
	about := aboutMachine(ctx)
	spots, err := openSpots(ctx, cfg, progress)
	defer func() {
		for _, s := range spots {
			s.close()
		}
	}()
	if err != nil {
		return err
	}
	if err := measureSpots(ctx, cfg, spots, progress); err != nil {
		return err
	}
	about.writeCurve(out, cfg, spots)
	for _, d := range cfg.dimensions() {
		line := spotsOf(spots, d)
		writeDimension(out, d, line)
		if cfg.svg == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(cfg.svg, d.name+".svg"), []byte(plotOf(d, line).svg()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// openSpots opens one for each point, however many dimensions it is in. It returns those that it has opened also with
// an error.
func openSpots(ctx context.Context, cfg curveConfig, progress io.Writer) ([]*spot, error) {
	var spots []*spot
	names := newNames(max(slices.Max(cfg.keys), cfg.base.keys))
	opened := map[point]bool{}
	for _, d := range cfg.dimensions() {
		for _, p := range d.points {
			if opened[p] {
				continue
			}
			opened[p] = true
			fmt.Fprintf(progress, "filling: %v\n", p)
			s, err := openSpot(ctx, p, cfg, names)
			if err != nil {
				return spots, fmt.Errorf("%v: %w", p, err)
			}
			spots = append(spots, s)
		}
	}
	return spots, nil
}

// spotsOf returns those of the dimension, in its order.
func spotsOf(spots []*spot, d dimension) (line []*spot) {
	for _, p := range d.points {
		at := slices.IndexFunc(spots, func(s *spot) bool { return s.point == p })
		line = append(line, spots[at])
	}
	return line
}

// measureSpots measures everything in every round, and once before, which does not count: it opens connections and
// loads scripts.
func measureSpots(ctx context.Context, cfg curveConfig, spots []*spot, progress io.Writer) error {
	type task struct {
		spot *spot
		kind string
	}
	var tasks []task
	for _, s := range spots {
		for _, kind := range []string{first, replay} {
			tasks = append(tasks, task{s, kind})
		}
	}
	order := rand.New(rand.NewPCG(cfg.seed, 0))
	for round := range cfg.rounds + 1 {
		d := cfg.time
		if round == 0 {
			d = min(d, 200*time.Millisecond)
		}
		fmt.Fprintf(progress, "round %d of %d\n", round, cfg.rounds)
		order.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
		for _, t := range tasks {
			m, err := t.spot.measure(ctx, t.kind, d)
			if err != nil {
				return fmt.Errorf("%s, %v: %w", t.kind, t.spot.point, err)
			}
			if m.failure != nil {
				fmt.Fprintf(progress, "%s, %v: %d wrong answers, one of them: %v\n", t.kind, t.spot.point, m.failed, m.failure)
			}
			if round > 0 {
				t.spot.marks[t.kind] = append(t.spot.marks[t.kind], m)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}
