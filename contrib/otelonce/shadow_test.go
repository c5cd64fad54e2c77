package otelonce_test

import (
	"net/http"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/onceguard/onceguard/middleware"
)

// What would have happened is not counted with what did, so that a shadow wakes nobody up.
func TestShadow(t *testing.T) {
	t.Parallel()
	runs := 0
	answer := func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.WriteHeader(http.StatusCreated + runs - 1)
	}
	s := newSite(t, answer, settings{middleware: []middleware.Option{middleware.WithShadow()}})
	s.send("k")
	s.send("k")
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
	metrics := s.metrics()
	for _, name := range []string{"onceguard.requests", "onceguard.handler.duration", "onceguard.record.size"} {
		if m, ok := metrics[name]; ok {
			t.Errorf("%s: %q, want nothing", name, points(t, m))
		}
	}
	const post = "http.request.method=POST,http.route=/payments/{id},onceguard.outcome="
	if got := points(t, metrics["onceguard.shadow.requests"]); !slices.Equal(got, []string{post + "executed: 1", post + "replayed: 1"}) {
		t.Errorf("%q", got)
	}
	if got := points(t, metrics["onceguard.store.duration"]); !slices.Equal(got, []string{"onceguard.phase=claim: 2", "onceguard.phase=settle: 1"}) {
		t.Errorf("%q", got)
	}
	server, _ := s.trace()
	if got := attributesOf(server.Attributes); !slices.ContainsFunc(server.Attributes, func(kv attribute.KeyValue) bool {
		return kv.Key == "onceguard.shadow.differs" && kv.Value.AsBool()
	}) {
		t.Errorf("the span of the duplicate has %s", got)
	}
}
