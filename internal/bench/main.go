// Command bench measures onceguard, and prints what the README and the docs say of its speed, in Markdown. It needs
// redis-server on the PATH and starts servers of its own, and wants a machine that does nothing else:
//
//	cd internal/bench && go run .            # the tables: beside the bare commands and others; ten minutes
//	cd internal/bench && go run . -http      # the same over loopback HTTP
//	cd internal/bench && go run . curve      # over callers, stored keys and bodies; eight minutes, 4 GB of memory
//	cd internal/bench && go run . soak       # half of what it can, for 20 minutes
//
// Each has a -help. For a first look:
//
//	go run . -rounds 3 -time 100ms -callers 1,64 -only '^(first|replay)/'
//	go run . curve -rounds 3 -time 200ms -keys 1,100,10000 -svg .
//	go run . soak -for 30s -every 5s
//
// # The tables
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
//
// # The curve
//
// One of three dimensions is varied at a time, the others stay at a base: 64 callers, 10,000 stored keys, bodies of
// 1 KiB, of requests as of responses. At each point first requests and replays are measured, in process, pinned as for
// the tables, in rounds whose order is shuffled. First requests have fresh keys, which are deleted after each
// measurement; replays draw from all stored keys. Each point has a server of its own for all rounds, and its keys were
// stored through the middleware, so that all are real and of real size. Of long bodies only as many are stored as fit
// into 64 MiB. A client's pool has 100 connections, go-redis's default on ten cores, however many callers there are.
//
// Answers that are not the wanted ones, as when Redis does not answer in time (lock.WithOpTimeout), are errors and in
// no rate; so are right ones whose response was not stored when they went out, which an observer sees. CPU is that of
// bench, callers and handler included, and that of Redis, in cores: who has a whole one is what the others wait for.
//
// # The soak
//
// The maximum is measured with 64 callers who ask as soon as they are answered, and then they ask half as often, each
// by a schedule of its own. A latency counts from when the schedule says, not from when the request could be sent, so
// everybody who would have asked during a stall sees it (no coordinated omission). Go's timers, late by up to a
// millisecond on an idle machine, are in it. Half of the requests are first ones, four in ten replays; the rest are
// other requests with a used key, and duplicates of eight that run all the while, longer than a lease is left alone.
// Retention is short, so that there are as many keys at the end as at the beginning; Redis, which ten times a second
// deletes those that have expired, is busy with that for a millisecond or more.
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

// errFlags says that the flags are wrong, which has been said in detail where they were read.
var errFlags = errors.New("wrong flags")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command, args := commandOf(os.Args[1:])
	switch err := command(ctx, args, os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errFlags):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// command measures what its arguments say, and writes what came of it to out, and how far it is to progress.
type command func(ctx context.Context, args []string, out, progress io.Writer) error

// commandOf returns the command and its arguments.
func commandOf(args []string) (command, []string) {
	if len(args) > 0 {
		switch args[0] {
		case "curve":
			return curve, args[1:]
		case "soak":
			return soak, args[1:]
		}
	}
	return compare, args
}

// coresToPin returns none where that is not possible.
func coresToPin(progress io.Writer) []int {
	cores, err := allowedCores()
	if err != nil {
		fmt.Fprintln(progress, "bench: not pinned:", err)
	}
	return cores
}
