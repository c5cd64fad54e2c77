package main

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"
)

const fiberLabel = "fiber v2 idempotency"

// openFiber opens a site under fiber's middleware, with its responses in Redis.
//
// It does less: its lock holds within one process only (three trips for a first request are two looks and a write, none
// of them a claim), nothing tells whether a request is the same but its key, which has neither route nor user in it and
// is not hashed, nothing is renewed or written conditionally. It keeps all headers.
func openFiber(_ context.Context, c conditions, s *service) (*site, error) {
	client := c.newClient()
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(idempotency.New(idempotency.Config{
		KeyHeader: "Idempotency-Key",
		Lifetime:  24 * time.Hour,
		Storage:   fiberredis.NewFromConnection(client),
	}))
	app.Post("/payments", s.fiber)
	return newFastSite(c, s, app.Handler(), client.Close)
}

// openFiberHandler opens a site on fiber that nobody protects.
func openFiberHandler(_ context.Context, c conditions, s *service) (*site, error) {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/payments", s.fiber)
	return newFastSite(c, s, app.Handler(), func() error { return nil })
}
