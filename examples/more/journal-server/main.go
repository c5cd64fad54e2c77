// Command journal-server is a payments API that keeps its promise even if Redis forgets everything. Its orders are in
// SQLite, PostgreSQL, MariaDB or MySQL, together with the record of each request.
//
//	go run .
//
// listens on 127.0.0.1:8080, with a SQLite file that is removed at exit, an embedded Redis and a fake payment provider.
// These flags take what a real service has:
//
//	go run . -db sqlite:payments.db -redis redis://localhost:6379
//	go run . -db postgres://user:password@localhost/payments -redis redis://localhost:6379
//	go run . -db mysql://user:password@localhost/payments -redis redis://localhost:6379
//	go run . -db sqlite:payments.db -redis none    # the database alone protects
//
// # The effect is in the database: POST /payments
//
// The payment and the record of its response are committed together. Send this twice:
//
//	curl -i -u ann: -X POST localhost:8080/payments -H 'Content-Type: application/json' \
//	  -H 'Idempotency-Key: "k1"' -d '{"amount":1250,"currency":"EUR"}'
//
// The second response is a replay of the first, also after a FLUSHALL or without Redis. List the payments to see that
// there is one:
//
//	curl -u ann: localhost:8080/payments
//
// # The effect is at a payment provider: POST /charges
//
// The response has the provider's receipt. A process that dies after the charge cannot tell anybody, so a sweep asks the
// provider later. Start the program with -db sqlite:payments.db, send this, and kill -9 the program within the 8 s:
//
//	curl -i -u ann: -X POST 'localhost:8080/charges?delay=8s' -H 'Content-Type: application/json' \
//	  -H 'Idempotency-Key: "k1"' -d '{"amount":1250,"currency":"EUR"}'
//
// Start it again, and repeat the request. What a user interface shows at each answer:
//
//   - 409 in-flight, for at most 20 s: "in progress".
//   - 409 outcome-unknown, with Retry-After: "We are checking with your bank. Do not pay again." Repeat the request with
//     the same key after that time.
//   - 201, here after half a minute: the sweep has found the charge, and this is its response. There is one charge. If the
//     provider had made none, the request would run now.
//   - 402: declined. Another try needs another key.
//
// The instance of each such problem is urn:onceguard:key:ID, and GET /charges/ID is the charge: also if a response says
// response-not-stored. A 404 there does not mean that nothing was charged. GET /charges lists a user's charges.
//
// GET /metrics has the metrics of contrib/promonce. compose.yml at the top of the repository starts this program with its
// databases, Prometheus and Grafana.
//
// If your response need not have the provider's answer, let a worker pay what POST /payments has committed: that leaves
// nothing to sweep. examples/more/doors/payer is such a program.
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
	"sync"
	"syscall"
	"time"
)

// config has the values of the command line.
type config struct {
	addr  string // host:port to listen on; port 0 is any free port, and the log names it
	db    string // sqlite:PATH or a URL of PostgreSQL or MySQL; empty means a SQLite file that is removed at exit
	redis string // the URL of a Redis server, or none; empty means an embedded one

	provider  string        // the URL of the payment provider; empty means a fake one in this program
	opTimeout time.Duration // for one operation on Redis
}

func main() {
	var cfg config
	flag.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on")
	flag.StringVar(&cfg.db, "db", "", "`database`, sqlite:PATH, postgres://... or mysql://... (default: DATABASE_URL, or else a SQLite file that is removed at exit)")
	flag.StringVar(&cfg.redis, "redis", "", "`URL` of a Redis server, or none (default: REDIS_URL, or else an embedded miniredis)")
	flag.StringVar(&cfg.provider, "provider", "", "`URL` of a payment provider with the API of the fake one (default: a fake one in this program)")
	flag.DurationVar(&cfg.opTimeout, "op-timeout", 500*time.Millisecond, "time for one operation on Redis")
	flag.Parse()
	// Not as the flags' defaults, because -help would print them with their passwords.
	if cfg.db == "" {
		cfg.db = os.Getenv("DATABASE_URL")
	}
	if cfg.redis == "" {
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
	s, err := openService(ctx, log, cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return errors.Join(err, s.close())
	}
	server := newServer(log, s.handler())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("listening", "addr", listener.Addr().String(), "db", s.db.name, "redis", s.redis.name, "provider", s.provider.url)
	s.logFindings(ctx)

	working, stopWorking := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { s.work(working) })

	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping", "why", context.Cause(ctx).Error())
	}
	err = errors.Join(err, drain(server))
	stopWorking()
	background.Wait()
	return errors.Join(err, s.close())
}

// newServer returns a server with limits for the open internet. Requests do not inherit the context that ends the
// process, so running requests can finish.
func newServer(log *slog.Logger, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      requestTimeout + 5*time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelError),
	}
}

const drainTimeout = requestTimeout + 5*time.Second // enough for a request that began at the last moment

// drain stops accepting connections and waits for the running requests.
func drain(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were still running after %v: %w", drainTimeout, err), server.Close())
	}
	return nil
}
