package middleware_test

import (
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// An instance with WithFailOpen meets the claim of one with WithAtMostOnce. Its SET shows that the key is held, and only
// its second command (is the lease still renewed?) fails. It must not run the handler.
func TestFailOpenDoesNotRunOverAClaim(t *testing.T) {
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		first := serve(t, b, behind(t, g, payOnce()), middleware.WithAtMostOnce())
		done := first.inBackground(g)
		p := redistest.NewProxy(t, b.Addr())
		second := serveOn(t, newLocker(t, p.Client(t)), payOnce(), middleware.WithFailOpen())
		cut := p.CutBefore(scriptCommands)
		a := second.send()
		cut.Lift()
		if cut.Hits() == 0 || a.status != http.StatusConflict {
			t.Errorf("%d %s after %d cuts, want 409", a.status, a.body, cut.Hits())
		}
		second.wantRuns(0)
		close(g.open)
		<-done
	})
}

// The same when the run was abandoned: nobody knows whether the money has moved.
func TestFailOpenDoesNotRunOverAnAbandonedRun(t *testing.T) {
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	both(t, func(t *testing.T, b redistest.Backend) {
		first := serve(t, b, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, middleware.WithAtMostOnce())
		_, _ = first.try(first.request(noRetry))
		b.Elapse(t, leaseTTL)
		p := redistest.NewProxy(t, b.Addr())
		second := serveOn(t, newLocker(t, p.Client(t)), payOnce(), middleware.WithFailOpen())
		cut := p.CutBefore(scriptCommands)
		a := second.send()
		cut.Lift()
		if cut.Hits() == 0 || a.status != http.StatusConflict {
			t.Errorf("%d %s after %d cuts, want 409", a.status, a.body, cut.Hits())
		}
		second.wantRuns(0)
	})
}
