package main

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// openOurs opens a site under onceguard with its defaults, and the key that its README recommends: route, user, header.
func openOurs(opts ...middleware.Option) opener {
	return func(_ context.Context, c conditions, s *service) (*site, error) {
		client := c.newClient()
		locker := lock.New(client, "bench")
		user := keyfunc.User(func(context.Context) string { return "42" })
		once := middleware.Idempotency(locker, keyfunc.Standard(user), opts...)
		return newSite(c, s, once(s), func() error {
			return errors.Join(locker.Close(context.Background()), client.Close())
		})
	}
}

// openHandler opens a site that nobody protects.
func openHandler(_ context.Context, c conditions, s *service) (*site, error) {
	return newSite(c, s, s, func() error { return nil })
}
