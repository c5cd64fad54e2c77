// The sites that requests are sent to: a handler under somebody's middleware, each opened by its opener.

package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/redis/go-redis/v9"
)

// site is a service that callers send requests to.
type site struct {
	newVisitor func() visitor // one for each caller
	close      func() error
	runs       func() (int64, error) // of the handler since the last call; nil if the service is in this process
}

// visitor sends the request with that key and returns the answer. The body is valid until the next call. It does little
// more than a server does for a request, and reuses what it can, so that the middleware is most of what is measured.
type visitor func(key string) (status int, body []byte, err error)

// opener opens a site around the service.
type opener func(context.Context, conditions, *service) (*site, error)

func closeNothing() error { return nil }

// openOurs opens a site under onceguard.
func openOurs(_ context.Context, c conditions, s *service) (*site, error) {
	protect, closeStore := protection(c)
	h := protect(s)
	return &site{newVisitor: func() visitor { return newCall(h, c.body).visit }, close: closeStore}, nil
}

// namespace is that of the keys.
const namespace = "bench"

// protection returns onceguard with its defaults, and the key that the README recommends: route, user and header.
func protection(c conditions, opts ...middleware.Option) (
	protect func(http.Handler) http.Handler, closeStore func() error,
) {
	client := c.newClient()
	locker := newLocker(client)
	user := keyfunc.User(func(context.Context) string { return "42" })
	return middleware.Idempotency(locker, keyfunc.Standard(user), opts...), func() error {
		return errors.Join(locker.Close(context.Background()), client.Close())
	}
}

// newLocker returns a Locker that has been checked, as in README's program: see lock.Locker.Check. It panics on a finding,
// because the servers are bench's own.
func newLocker(client redis.UniversalClient, opts ...lock.Option) *lock.Locker {
	locker := lock.New(client, namespace, opts...)
	if err := locker.Check(context.Background()); err != nil {
		panic(err)
	}
	return locker
}

// fiberProtection returns fiber's middleware, which stores responses in Redis.
//
// It does less than onceguard. Its lock holds within one process: the three commands of a first request are two reads and
// a write, and none is a claim. The key has neither route nor user in it and is not hashed, and a request is not compared
// with the one before. Nothing is renewed or written conditionally. All headers are kept.
func fiberProtection(client *redis.Client) fiber.Handler {
	return idempotency.New(idempotency.Config{
		KeyHeader: idempotencyKey,
		Lifetime:  24 * time.Hour,
		Storage:   fiberredis.NewFromConnection(client),
	})
}

func fiberApp(handlers ...any) *fiber.App {
	app := fiber.New()
	app.Post("/payments", handlers[0], handlers[1:]...)
	return app
}
