package otelonce

import (
	"context"
	"strconv"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceguard/onceguard/middleware"
)

// Observer returns the observer of New's option.
func Observer(opts ...Option) func(context.Context, middleware.Event) {
	_, t := newTelemetry("otelonce.New", opts)
	return t.observe
}

// KeptAfter returns how many combinations of labels are kept after requests to n routes.
func KeptAfter(n int) int {
	m := newMetrics(sdkmetric.NewMeterProvider().Meter(""))
	for i := range n {
		m.ofRequests.of(labels{route: strconv.Itoa(i)})
	}
	return len(*m.ofRequests.known.Load())
}
