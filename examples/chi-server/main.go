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

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/examples/chi-server/internal/demo"
	"github.com/onceguard/onceguard/lock"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	url := flag.String("redis", "", "`URL` of a Redis server (default: REDIS_URL, or else an embedded miniredis)")
	opTimeout := flag.Duration("op-timeout", 500*time.Millisecond, "time for one operation on Redis")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)

	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		err = run(ctx, listener, cmp.Or(*url, os.Getenv("REDIS_URL")), *opTimeout)
	}
	if err != nil {
		slog.Error("failed", "err", err)
		os.Exit(1)
	}
}

// run serves until ctx is done. Then it waits for the running requests, and for the locker's background work.
func run(ctx context.Context, listener net.Listener, url string, opTimeout time.Duration) error {
	options, err := redisOptions(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	locker := lock.New(client, "chi-server", lock.WithOpTimeout(opTimeout))
	if err := locker.Check(ctx); err != nil && url != "" { // it may be up later
		slog.Warn("redis check", "finding", err)
	}
	shops := demo.New(ctx, options, url == "", opTimeout, user)
	server := &http.Server{
		Handler:           newHandler(locker, client, shops),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		// A late response can still be sent.
		WriteTimeout: requestTimeout + 5*time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	slog.Info("listening", "addr", listener.Addr().String(), "open", "http://"+listener.Addr().String(), "redis", options.Addr)
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), requestTimeout+5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(closing), locker.Close(closing), client.Close())
}

// redisOptions returns those of the server at the URL, or of an embedded one if there is none.
func redisOptions(url string) (*redis.Options, error) {
	if url == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return nil, err
		}
		// Keys expire in real time, and not when a test moves the clock.
		embedded.ClockTTL(true)
		url = "redis://" + embedded.Addr()
	}
	options, err := redis.ParseURL(url)
	if err != nil { // whose text may contain the password
		return nil, errors.New("the Redis URL is malformed: want redis://[user:password@]host:port[/database]")
	}
	options.ContextTimeoutEnabled = true // calls end at their deadlines
	return options, nil
}
