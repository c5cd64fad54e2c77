package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"time"
)

// config is what the flags of the tables say.
type config struct {
	rounds  int
	time    time.Duration // of one measurement
	callers []int
	only    *regexp.Regexp
	http    bool
	seed    uint64
	flags   []string // as they were given
	cores   []int    // to pin bench and Redis to; none: they are not
}

// compare prints the tables.
func compare(ctx context.Context, args []string, out, progress io.Writer) error {
	cfg, err := parse(args, progress)
	if err != nil {
		return err
	}
	cfg.cores = coresToPin(progress)
	return run(ctx, cfg, out, progress)
}

func parse(args []string, out io.Writer) (config, error) {
	cfg := config{flags: args, callers: []int{1, 16, 64, 256}, only: regexp.MustCompile("")}
	flags := newFlags("bench", out)
	flags.IntVar(&cfg.rounds, "rounds", 15, "how often everything is measured")
	flags.DurationVar(&cfg.time, "time", 400*time.Millisecond, "how long one measurement takes")
	flags.BoolVar(&cfg.http, "http", false, "over loopback HTTP instead of in process")
	flags.Uint64Var(&cfg.seed, "seed", uint64(time.Now().UnixNano()), "of the order; the default is another one each time")
	flags.Func("callers", "numbers of concurrent callers (default 1,16,64,256)", func(list string) (err error) {
		cfg.callers, err = numbers(list, 1)
		return err
	})
	flags.Func("only", "a regular expression for the group/name of what is measured", func(text string) (err error) {
		cfg.only, err = regexp.Compile(text)
		return err
	})
	return cfg, flags.parse(args, func() bool { return cfg.rounds >= 1 && cfg.time > 0 })
}

// run measures, and writes the tables to out and how far it is to progress.
func run(ctx context.Context, cfg config, out, progress io.Writer) error {
	t := newTables(cfg)
	about := aboutMachine(ctx)
	for _, callers := range cfg.callers {
		b := board{cfg: cfg, callers: callers, progress: progress}
		measured, err := b.play(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", plural(callers, "caller"), err)
		}
		t.add(measured)
	}
	about.write(out, cfg, t.columns)
	t.write(out)
	if n := len(t.failures); n > 0 {
		return fmt.Errorf("%d measurements failed", n)
	}
	return nil
}
