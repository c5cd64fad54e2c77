// Command checkout is the checkout of a shop for agents, by the rules of ACP or UCP (package profile). Its sessions and
// orders are in SQLite, together with the record of each request.
//
//	go run ./checkout -profile acp
//
// listens on 127.0.0.1:8080, with a SQLite file that is removed at exit and an embedded Redis. These flags take what a real
// service has:
//
//	go run ./checkout -profile acp -db sqlite:shop.db -redis redis://localhost:6379
//
// Any Bearer token names the identity. Create a checkout, and complete it:
//
//	curl -i localhost:8080/checkout_sessions -H 'Authorization: Bearer ann' -H 'Idempotency-Key: k1' \
//	  -H 'Content-Type: application/json' -d '{"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur"}'
//	curl -i -X POST localhost:8080/checkout_sessions/ID/complete -H 'Authorization: Bearer ann' -H 'Idempotency-Key: k2'
//
// Each of them again gets the same response, with Idempotent-Replayed: true. Other items under the key k1 get 422, and with
// -profile ucp 409. With UCP the path is /checkout-sessions, and an update is a PUT. There is one order:
//
//	curl localhost:8080/orders -H 'Authorization: Bearer ann'
//
// The query ?delay=2s makes a request slow, so that a duplicate can be sent while it runs.
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
	addr    string // host:port to listen on; port 0 is any free port, and the log names it
	db      string // sqlite:PATH; empty means a file that is removed at exit
	redis   string // the URL of a Redis server; empty means an embedded one
	profile string // a name in protocols

	opTimeout time.Duration // for one operation on Redis
}

func main() {
	var cfg config
	flag.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on")
	flag.StringVar(&cfg.db, "db", "", "sqlite:`PATH` (default: a file that is removed at exit)")
	flag.StringVar(&cfg.redis, "redis", "", "`URL` of a Redis server (default: REDIS_URL, or else an embedded miniredis)")
	flag.StringVar(&cfg.profile, "profile", "acp", "the rules: acp or ucp")
	flag.DurationVar(&cfg.opTimeout, "op-timeout", 500*time.Millisecond, "time for one operation on Redis")
	flag.Parse()
	if cfg.redis == "" { // not as the flag's default, because -help would print it with its password
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

// requestTimeout is the most time a request may take. It is above maxDelay, and below the server's WriteTimeout.
const requestTimeout = 20 * time.Second

// run serves until ctx is done, then waits for the running requests and cleans up.
func run(ctx context.Context, log *slog.Logger, cfg config) error {
	s, err := openShop(ctx, log, cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return errors.Join(err, s.close())
	}
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      requestTimeout + 5*time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelError),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	working, stopWorking := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { s.expire(working) })
	log.Info("listening", "addr", listener.Addr().String(), "rules", s.rules.String())

	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping", "why", context.Cause(ctx).Error())
	}
	drain, cancel := context.WithTimeout(context.Background(), requestTimeout+5*time.Second)
	defer cancel()
	if shutdownErr := server.Shutdown(drain); shutdownErr != nil {
		err = errors.Join(err, fmt.Errorf("requests were still running: %w", shutdownErr), server.Close())
	}
	stopWorking()
	background.Wait()
	return errors.Join(err, s.close())
}
