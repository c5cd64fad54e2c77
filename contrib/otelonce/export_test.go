package otelonce

import (
	"context"

	"github.com/onceguard/onceguard/middleware"
)

// Observer returns the observer of New's option.
func Observer(opts ...Option) func(context.Context, middleware.Event) {
	_, t := newTelemetry("otelonce.New", opts)
	return t.observe
}
