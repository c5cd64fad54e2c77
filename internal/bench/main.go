// Command bench measures onceguard and prints, as Markdown, the tables of results. It needs redis-server on
// the PATH, starts its own servers, and needs a machine that does nothing else:
//
//	cd internal/bench
//	go run .          # the comparison with the bare commands and with others: ten minutes
//	go run . curve    # over callers, stored keys and bodies: eight minutes, 4 GB of memory
//	go run . soak     # half of the maximum, for 20 minutes
//	go run . journal  # with a journal, on each database that is installed: two minutes for each
//
// Each has a -help. For a first look: go run . -rounds 3 -time 100ms
//
// A request is a call of a handler in this process, except over HTTP. On Linux, with taskset on the PATH, bench has one core
// and Redis another; with one caller they share one. Every answer is checked, and so is what lies behind it: how often
// the handler ran and what Redis holds.
//
// # The comparison
//
// Contenders are called "group/name", and only those of one group are compared. Each round measures every contender
// once, group by group, in a random order. A ratio is taken within a round, where both sides were measured within
// seconds. The tables have the medians of the rounds and the quartiles. Every pool has as many connections as there are
// callers. A contender that fails is missing in the tables, and the reason is below them. TestContenders runs each
// contender for its errors and not for its times.
//
// Over HTTP the server is a process of its own and has a core, and the callers share the other one with Redis.
//
// # The curve
//
// One dimension varies at a time, and the others stay at a base: 64 callers, 10,000 stored keys, bodies of 1 KiB. Each
// point has its own server, whose keys were stored through the middleware. First requests have fresh keys, which are
// deleted after each measurement; replays draw from all stored keys. Of long bodies no more are stored than fit into
// 64 MiB. Wrong answers, for example because Redis did not answer in time, are errors and not in the rate. So are right
// ones whose response was not stored. CPU is counted in cores: the one that is near 1 is the bottleneck.
//
// # The soak
//
// After the maximum was measured, callers send half as many requests, each by its own schedule. A latency counts from
// the scheduled time, so a stall is in the latencies of all requests that it delays (no coordinated omission). It
// includes the delay of Go's timers, up to a millisecond on an idle machine. Half of the requests are first ones, four
// in ten are replays, and the rest are other requests with a used key and duplicates of requests in flight. Retention
// is short, so that keys expire as fast as they are stored. Redis deletes expired keys ten times a second, for a
// millisecond or more.
//
// # The journal
//
// It is measured as the comparison is, with a handler that inserts a payment into a database in a transaction: that
// transaction alone, under the middleware, and with a journal in each of its modes. A database has its defaults, so a commit
// waits for fsync. All run in the same pool of connections and on the same tables, which grow. A database has a process or a
// thread for each connection, so nothing is pinned. ONCEGUARD_SERVERS names others than those that are installed:
//
//	ONCEGUARD_SERVERS=$(../../.ci/servers postgresql-15 mariadb-10.11 mysql-9.7 | paste -sd:) go run . journal
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// commands are the commands by name. The comparison has none.
var commands = map[string]command{
	"": commandOf(parseCompare, compare), "curve": commandOf(parseCurve, curve), "soak": commandOf(parseSoak, soak),
	journalCommand: commandOf(parseJournal, journal), serveCommand: commandOf(parseServe, serve),
}

type command func(context.Context, session) error

// commandOf returns a command that parses its flags and runs.
func commandOf[C any](parse func(session) (C, error), run func(context.Context, session, C) error) command {
	return func(ctx context.Context, s session) error {
		cfg, err := parse(s)
		if err != nil {
			return err
		}
		return run(ctx, s, cfg)
	}
}

// parseFlags parses the arguments of s, which are flags only. Every error but [flag.ErrHelp] comes with the usage.
func parseFlags(flags *flag.FlagSet, s session) error {
	flags.SetOutput(s.progress)
	if err := flags.Parse(s.args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		flags.Usage()
		return errors.New("takes flags only")
	}
	return nil
}

// session is what a command runs in.
type session struct {
	args     []string  // without the command's name
	out      io.Writer // gets the tables
	progress io.Writer // gets how far the command is, and what is wrong with the flags
	cores    cores
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name, args := "", os.Args[1:]
	if len(args) > 0 && commands[args[0]] != nil {
		name, args = args[0], args[1:]
	}
	s := session{args: args, out: os.Stdout, progress: os.Stderr}
	if name != journalCommand && name != serveCommand {
		s.cores = pin(ctx, s.progress)
	}
	err := commands[name](ctx, s)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
