// Command journal-server is a payments API that keeps its promise even if Redis forgets everything. Its orders are in
// SQLite or PostgreSQL, together with the record of each request.
//
//	go run .
//
// listens on 127.0.0.1:8080, with a SQLite file in the folder for temporary files, an embedded Redis and a fake payment provider.
// These flags take what a real service has:
//
//	go run . -db sqlite:payments.db -redis redis://localhost:6379
//	go run . -db postgres://user:password@localhost/payments -redis redis://localhost:6379
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
// The instance of each such problem is urn:onceguard:key:ID, and GET /payments/ID is the charge: also if a response says
// response-not-stored. A 404 there does not mean that nothing was charged.
//
// GET /metrics has the metrics of contrib/promonce. compose.yml at the top of the repository starts this program with its
// databases, Prometheus and Grafana.
//
// If your response need not have the provider's answer, let a worker pay what POST /payments has committed: that leaves
// nothing to sweep. examples/more/doors/payer is such a program.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// config has the values of the command line.
type config struct {
	// sqlite:PATH or a URL of PostgreSQL; empty means a temporary SQLite file.
	db string
	// The URL of a Redis server, or none; empty means an embedded one.
	redis     string
	opTimeout time.Duration // for one operation on Redis
}

func main() {
	cfg := config{opTimeout: 500 * time.Millisecond}
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	flag.StringVar(&cfg.db, "db", "", "`database`, sqlite:PATH or postgres://... (default: DATABASE_URL, or else a temporary SQLite file)")
	flag.StringVar(&cfg.redis, "redis", "", "`URL` of a Redis server, or none (default: REDIS_URL, or else an embedded miniredis)")
	flag.Parse()
	// Not as the flags' defaults, because -help would print them with their passwords.
	cfg.db, cfg.redis = cmp.Or(cfg.db, os.Getenv("DATABASE_URL")), cmp.Or(cfg.redis, os.Getenv("REDIS_URL"))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		err = run(ctx, listener, cfg)
	}
	if err != nil {
		slog.Error("failed", "err", err)
		os.Exit(1)
	}
}

// run serves until ctx is done, then waits for the running requests and cleans up.
func run(ctx context.Context, listener net.Listener, cfg config) error {
	s, err := openService(ctx, cfg)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		// A late response can still be sent.
		WriteTimeout: requestTimeout + 5*time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	slog.Info("listening", "addr", listener.Addr().String())
	go s.work(ctx)
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), requestTimeout+5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(closing), s.close(closing))
}
