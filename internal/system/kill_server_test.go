package system_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// killLease is short, so that the keys of a killed process soon become free, and long enough for a process on a busy
// machine to renew.
const killLease = 5 * time.Second

// servePayments is the program of an instance. Its arguments are the address of Redis, the URL of the desk, the name of the
// instance, and "true" for WithAtMostOnce. It prints its URL, and serves until its input ends or it is killed. Its response
// to a payment is what the desk answers.
func servePayments(args []string, in io.Reader, out io.Writer) error {
	addr, desk, name, atMostOnce := args[0], args[1], args[2], args[3] == "true"
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locker := lock.New(client, "payments", lock.WithTTL(killLease), lock.WithOpTimeout(patience))
	opts := []middleware.Option{middleware.WithRequired()}
	if atMostOnce {
		opts = append(opts, middleware.WithAtMostOnce())
	}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), opts...)
	server := &http.Server{Handler: once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := url.Values{"instance": {name}, "key": {r.Header.Get("Idempotency-Key")}}
		goAhead, err := http.Get(desk + "?" + query.Encode())
		if err != nil {
			panic(err)
		}
		defer goAhead.Body.Close()
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, goAhead.Body) // the client may have left
	}))}
	listener, err := redistest.ListenAlone()
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(out, "http://%s\n", listener.Addr())
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = errors.Join(server.Shutdown(ctx), locker.Close(ctx))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
