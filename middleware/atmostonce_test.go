package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// If the run does not begin, no key stays abandoned, although the claim has its hold from the first, and its release
// fails at first.
func TestAtMostOnceDoesNotBegin(t *testing.T) {
	sets := redistest.Named("SET")
	for name, test := range map[string]struct {
		fault  func(*redistest.Proxy) *redistest.Rule
		begins error // of the journal
	}{
		"the replies to the claim are lost": {func(p *redistest.Proxy) *redistest.Rule { return p.DropReply(sets) }, nil},
		"the claim does not arrive in time": {func(p *redistest.Proxy) *redistest.Rule { return p.HoldRequest(sets) }, nil},
		"the journal refuses":               {func(p *redistest.Proxy) *redistest.Rule { return p.CutBefore(scriptCommands) }, errDown},
	} {
		t.Run(name, func(t *testing.T) {
			if test.begins != nil {
				redistest.Since(t, "7.0", "SET with both NX and GET, so that only the release is a script,")
			}
			both(t, func(t *testing.T, b redistest.Backend) {
				p, j := redistest.NewProxy(t, b.Addr()), newJournal(true)
				s := serveOn(t, newLocker(t, p.Client(t), lock.WithOpTimeout(time.Second)), payOnce(),
					middleware.WithAtMostOnce(), middleware.WithJournal(j))
				j.setHooks(at("begin", map[bool]int{true: 2}[test.begins != nil]), nil)
				fault := test.fault(p)
				s.wantRefused(s.send(), http.StatusServiceUnavailable, middleware.StoreUnavailable, "store-unavailable")
				fault.Wait(t)
				fault.Lift()
				s.wantRuns(0)
				s.awaitFree(b)
				s.want(s.send(), http.StatusCreated, middleware.Executed)
			})
		})
	}
}
