package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// protect returns onceguard with its defaults, and the key that its README recommends: route, user, header. What it
// stores is in that namespace.
func protect(c conditions, namespace string, opts ...middleware.Option) (
	once func(http.Handler) http.Handler, closeStore func() error,
) {
	client := c.newClient()
	locker := lock.New(client, namespace)
	user := keyfunc.User(func(context.Context) string { return "42" })
	return middleware.Idempotency(locker, keyfunc.Standard(user), opts...), func() error {
		return errors.Join(locker.Close(context.Background()), client.Close())
	}
}

// openOurs opens a site under onceguard.
func openOurs(opts ...middleware.Option) opener { return openOursIn("bench", opts...) }

// openOursIn does so in that namespace.
func openOursIn(namespace string, opts ...middleware.Option) opener {
	return func(_ context.Context, c conditions, s *service) (*site, error) {
		once, closeStore := protect(c, namespace, opts...)
		return newSite(c, s, once(s), closeStore)
	}
}

// openHandler opens a site that nobody protects.
func openHandler(_ context.Context, c conditions, s *service) (*site, error) {
	return newSite(c, s, s, func() error { return nil })
}
