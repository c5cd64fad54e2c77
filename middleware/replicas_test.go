package middleware_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// A response that a failover may still lose is not replayed, and its request does not run again.
//
// fault: value met under WithReplicas, link to the replica cut
func TestResponseIsNotConfirmed(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	client := master.Client(t)
	patient := newLocker(t, client, lock.WithReplicas(1, 15*time.Second))
	hasty := newLocker(t, client, lock.WithReplicas(1, 300*time.Millisecond))
	first := serveOn(t, patient, payOnce())
	first.want(first.send(), http.StatusCreated, middleware.Executed)
	replica.Pause(t)
	for name, opts := range map[string][]middleware.Option{
		"by default": nil, "at most once": {middleware.WithAtMostOnce()}, "fail open": {middleware.WithFailOpen()},
	} {
		s := serveOn(t, hasty, payOnce(), opts...)
		a := s.send()
		e := s.wantRefused(a, http.StatusServiceUnavailable, middleware.StoreUnavailable, "store-unavailable")
		if !errors.Is(e.Err, lock.ErrSettled) || !errors.Is(e.Err, lock.ErrNotReplicated) {
			t.Errorf("%s: error %v, want ErrSettled and ErrNotReplicated", name, e.Err)
		}
		if !strings.Contains(a.body, "was processed") || strings.Contains(a.body, "nothing was done") ||
			a.header.Get("Retry-After") != "1" || a.header.Get("X-Should-Retry") != "true" {
			t.Errorf("%s: %+v, want that the request was processed, and is to be repeated", name, a)
		}
		s.wantRuns(0)
	}
	replica.Resume(t)
	first.want(first.send(), http.StatusCreated, middleware.Replayed)
	first.wantRuns(1)
}
