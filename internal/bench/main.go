// Command bench measures onceguard and prints, as Markdown, the tables of results. It needs redis-server on
// the PATH, starts its own servers, and needs a machine that does nothing else:
//
//	cd internal/bench
//	go run . http     # over HTTP: three minutes
//	go run .          # in process, beside the bare commands and lock libraries: six minutes
//	go run . journal  # with a journal, on each database that is installed: two minutes for each
//
// Each has a -help. For a first look: go run . http -rounds 3 -time 100ms
//
// On Linux, with taskset on the PATH, bench has one core and Redis another; with one caller they share one. Every answer is
// checked, and so is what lies behind it: how often the handler ran and what Redis holds.
//
// Contenders are called "group/name", and only those of one group are compared. Each round measures every contender
// once, group by group, in a random order. A ratio is taken within a round, where both sides were measured within
// seconds. The tables have the medians of the rounds and the quartiles. Every pool has as many connections as there are
// callers. A contender that fails ends the run. TestContenders runs each
// contender for its errors and not for its times.
//
// Over HTTP the server is a process of its own and has a core, and the callers share the other one with Redis. To compare two
// versions of onceguard in the same rounds, build this program of the one and give it to the other: -beside PROGRAM.
//
// The journal's handler inserts a payment into a database in a transaction: that transaction alone, under the middleware, and
// with a journal in each of its modes. A database has its defaults, so a commit waits for fsync. All run in the same pool
// of connections and on the same tables, which grow. A database has a process or a thread for each connection, so nothing
// is pinned. ONCEGUARD_SERVERS names others than those that are installed:
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

// commands are the commands by name. The comparison in process has none.
var commands = map[string]func(context.Context, session) error{
	"": compare, httpCommand: compareHTTP, journalCommand: journal, serveCommand: serve,
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
