package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// A contender is a library, set up as its documentation says, in front of the same handler.
type contender struct {
	name  string
	redis bool // it stores what it knows in Redis
	serve func(l net.Listener, client *redis.Client, effects *os.File) error
}

var contenders = []contender{
	{"onceguard", true, serveOnceguard(middleware.WithRequired())},
	{"onceguard-at-most-once", true, serveOnceguard(middleware.WithRequired(), middleware.WithAtMostOnce())},
	{"fiber-redis", true, func(l net.Listener, client *redis.Client, effects *os.File) error {
		return serveFiber(l, effects, idempotency.Config{
			KeyHeader: keyHeader, Storage: fiberredis.NewFromConnection(client), KeyHeaderValidate: anyKey,
		})
	}},
	{"fiber-default", false, func(l net.Listener, _ *redis.Client, effects *os.File) error {
		return serveFiber(l, effects, idempotency.Config{}) // in memory, and with the header that fiber names
	}},
	{"none", false, func(l net.Listener, _ *redis.Client, effects *os.File) error { return http.Serve(l, handler(effects)) }},
}

// find returns the contender with that name.
func find(name string) (contender, error) {
	for _, c := range contenders {
		if c.name == name {
			return c, nil
		}
	}
	return contender{}, fmt.Errorf("there is no contender %q", name)
}

const keyHeader = "Idempotency-Key"

// anyKey takes every key. Without it fiber refuses keys that are not 36 characters long, and so all that are in quotes.
func anyKey(string) error { return nil }

func serveOnceguard(opts ...middleware.Option) func(net.Listener, *redis.Client, *os.File) error {
	return func(l net.Listener, client *redis.Client, effects *os.File) error {
		locker := lock.New(client, "peers")
		err := locker.Check(context.Background())
		for i := 0; i < 20 && err != nil; i++ { // on a busy machine Redis may answer late
			err = locker.Check(context.Background())
		}
		if err != nil {
			return err
		}
		user := keyfunc.User(func(ctx context.Context) string { name, _ := ctx.Value(userKey{}).(string); return name })
		protected := middleware.Idempotency(locker, keyfunc.Standard(user), opts...)(handler(effects))
		return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			protected.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("Authorization"))))
		}))
	}
}

type userKey struct{}

// handler serves POST /payments and POST /refunds, which are the same.
func handler(effects *os.File) http.Handler {
	mux := http.NewServeMux()
	serve := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the body is incomplete", http.StatusBadRequest)
			return
		}
		a, err := pay(effects, r.URL.Query(), body)
		if err != nil {
			panic(err)
		}
		for name, value := range a.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body)
	}
	mux.HandleFunc("POST /payments", serve)
	mux.HandleFunc("POST /refunds", serve)
	return mux
}

func serveFiber(l net.Listener, effects *os.File, cfg idempotency.Config) error {
	app := fiber.New()
	app.Use(idempotency.New(cfg))
	serve := func(c fiber.Ctx) error {
		query := make(map[string][]string)
		for name, value := range c.Queries() {
			query[name] = []string{value}
		}
		a, err := pay(effects, query, c.Body())
		if err != nil {
			return err
		}
		for name, value := range a.header {
			c.Set(name, value)
		}
		return c.Status(a.status).Send(a.body)
	}
	app.Post("/payments", serve)
	app.Post("/refunds", serve)
	return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
}
