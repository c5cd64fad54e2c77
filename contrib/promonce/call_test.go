package promonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/onceguard/onceguard/contrib/promonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

// Calls of once.Do count as requests, by their Operation.
func TestCalls(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	locker := newLocker(t, redistest.Mini(t).Client(t), "payments-api")
	guard := once.New(locker, once.WithObserver(promonce.New(reg, locker).ObserveCall))
	pay := func(id string, err error) {
		_, _, _ = once.Do(t.Context(), guard, once.Key{Operation: "/payments.v1.Payments/Pay", Scope: "ann", ID: id},
			func(context.Context) (int, error) { return 1, err })
	}
	pay("1", nil)
	pay("1", nil)
	pay("2", errors.New("declined"))
	pay("", nil)
	want := `
		# HELP onceguard_requests_total Requests whose method is protected, by what happened to them.
		# TYPE onceguard_requests_total counter
		onceguard_requests_total{error_type="",locker="payments-api",method="",outcome="executed",route="/payments.v1.Payments/Pay"} 1
		onceguard_requests_total{error_type="",locker="payments-api",method="",outcome="freed",route="/payments.v1.Payments/Pay"} 1
		onceguard_requests_total{error_type="",locker="payments-api",method="",outcome="replayed",route="/payments.v1.Payments/Pay"} 1
		onceguard_requests_total{error_type="key_invalid",locker="payments-api",method="",outcome="invalid-key",route="/payments.v1.Payments/Pay"} 1
	`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "onceguard_requests_total"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]int{"onceguard_handler_duration_seconds": 2, "onceguard_record_size_bytes": 2} {
		if n, err := testutil.GatherAndCount(reg, name); n != want || err != nil {
			t.Errorf("%s has %d series (%v), want %d", name, n, err, want)
		}
	}
}
