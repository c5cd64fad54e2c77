// Command bench measures onceguard beside the bare Redis commands that it needs, and beside others who do the same. It
// prints the tables of the README and the docs, in Markdown:
//
//	cd internal/bench && go run .            # in process
//	cd internal/bench && go run . -http      # over loopback HTTP
//
// It needs redis-server on the PATH, and starts one of its own for each number of callers. A full run takes about
// ten minutes, and wants a machine that does nothing else. For a first look:
//
//	go run . -rounds 3 -time 100ms -callers 1,64 -only '^(first|replay)/'
//
// What is measured is called "group/name", and only what is in one group is compared. In a round everything is measured
// once, group by group, groups and what is in them shuffled. A ratio is taken within a round, where both of its sides
// were measured within seconds of each other, and the tables have the medians over the rounds, and the quartiles.
//
// On Linux, bench and Redis are pinned: together on one core for one caller, where nothing runs at the same time anyway
// and a sleeping core would have to be woken for each half of a round trip; on a core each for more callers. Bench has
// GOMAXPROCS=1. Everybody's pool of connections is as large as the number of callers.
//
// Whatever is measured is also checked: how often the handler ran, what was answered, what lies in Redis. What fails is
// not in the tables, but below them, and the exit status is 1.
//
// CI runs it once and without looking at the times:
//
//	go test -run '^$' -bench . -benchtime 1x
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// config is what the flags say.
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := parse(os.Args[1:], os.Stderr)
	if err == flag.ErrHelp {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	if cfg.cores, err = allowedCores(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: not pinned:", err)
	}
	if err := run(ctx, cfg, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (config, error) {
	cfg := config{flags: args, callers: []int{1, 16, 64, 256}, only: regexp.MustCompile("")}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&cfg.rounds, "rounds", 15, "how often everything is measured")
	flags.DurationVar(&cfg.time, "time", 400*time.Millisecond, "how long one measurement takes")
	flags.BoolVar(&cfg.http, "http", false, "over loopback HTTP instead of in process")
	flags.Uint64Var(&cfg.seed, "seed", uint64(time.Now().UnixNano()), "of the order; the default is another one each time")
	flags.Func("callers", "numbers of concurrent callers (default 1,16,64,256)", func(list string) (err error) {
		cfg.callers, err = numbers(list)
		return err
	})
	flags.Func("only", "a regular expression for the group/name of what is measured", func(text string) (err error) {
		cfg.only, err = regexp.Compile(text)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if flags.NArg() > 0 || cfg.rounds < 1 || cfg.time <= 0 {
		fmt.Fprintln(out, "bench: takes flags only, at least one round, and some time")
		flags.Usage()
		return config{}, flag.ErrHelp
	}
	return cfg, nil
}

func numbers(list string) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of callers", text)
		}
		all = append(all, n)
	}
	return all, nil
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
