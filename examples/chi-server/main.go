// Command chi-server is a payments API, and a page on which you can see double clicks and worse: the same shop twice,
// with onceguard and without.
//
//	go run ./examples/chi-server
//
// listens on 127.0.0.1:8080: open http://127.0.0.1:8080 in a browser. Redis is embedded, and its data is lost when the
// process ends. With -redis URL, or REDIS_URL in the environment, the server uses a real Redis, which any number of these
// servers can share. Send this twice:
//
//	curl -i -u ann: -X POST localhost:8080/payments -H 'Content-Type: application/json' \
//	  -H 'Idempotency-Key: "k1"' -d '{"amount":1250,"currency":"EUR"}'
//
// The second response is a replay of the first. List the payments to see that there is one:
//
//	curl -u ann: localhost:8080/payments
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/onceguard/onceguard/examples/chi-server/internal/demo"
	"github.com/onceguard/onceguard/lock"
)

// config has the values of the command line.
type config struct {
	addr  string // host:port to listen on; port 0 is any free port, and the log names it
	redis string // the URL of a Redis server; empty means an embedded one

	opTimeout time.Duration // for one operation on Redis
}

func main() {
	var cfg config
	flag.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on")
	flag.StringVar(&cfg.redis, "redis", "", "`URL` of a Redis server (default: REDIS_URL, or else an embedded miniredis)")
	flag.DurationVar(&cfg.opTimeout, "op-timeout", 500*time.Millisecond, "time for one operation on Redis")
	flag.Parse()
	if cfg.redis == "" { // not as the flag's default, because -help would print it with the password
		cfg.redis = os.Getenv("REDIS_URL")
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, log, cfg); err != nil {
		log.Error("failed", "err", err)
		os.Exit(1)
	}
}

// run serves until ctx is done, then waits for the running requests and cleans up. It returns nil if all of that
// succeeded.
func run(ctx context.Context, log *slog.Logger, cfg config) error {
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	db, err := openRedis(cfg.redis)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	locker := lock.New(db.client, "chi-server", lock.WithOpTimeout(cfg.opTimeout))
	shops := demo.New(demo.Config{
		Redis:     db.options,
		Embedded:  db.embedded != nil,
		OpTimeout: cfg.opTimeout,
		Visitor:   visitorID,
		Observe:   logEvents(log),
	})
	server := newServer(log, newHandler(log, locker, db.client, shops))
	server.RegisterOnShutdown(shops.CloseStreams)

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("listening", "addr", listener.Addr().String(), "open", "http://"+listener.Addr().String(), "redis", db.name)
	if db.embedded == nil {
		logFindings(ctx, log, locker)
	}

	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping", "why", context.Cause(ctx).Error())
	}
	return errors.Join(err, shutDown(server, locker, shops), db.close())
}

// logFindings logs why the Redis server cannot keep the promises of the lock, if it cannot. No answer is one of the reasons,
// because the server may be up later. The check takes no longer than any other operation of the locker.
func logFindings(ctx context.Context, log *slog.Logger, locker *lock.Locker) {
	if err := locker.Check(ctx); err != nil && ctx.Err() == nil {
		log.Warn("redis check", "finding", err)
	}
}

const (
	drainTimeout = requestTimeout + 5*time.Second // enough for a request that began at the last moment
	closeTimeout = 2 * time.Second
)

// shutDown stops accepting connections and waits for the running requests, and then for the locker's background work.
// Close the Redis client only after that.
func shutDown(server *http.Server, locker *lock.Locker, shops *demo.Demo) error {
	drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err := server.Shutdown(drain)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were still running after %v: %w", drainTimeout, err), server.Close())
	}
	rest, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return errors.Join(err, shops.Close(rest), locker.Close(rest))
}
