// Package oncetest drives your own handler, as it is mounted, through what makes requests come twice: a double click, a
// lost response, a crash, a panic, a slow client. A test of one statement tells whether the effect, such as a payment,
// happens once all the same:
//
//	func TestPaymentsHappenOnce(t *testing.T) {
//		provider := newFakeProvider()
//		oncetest.Run(t, oncetest.Case{
//			Handler: func(client redis.UniversalClient) http.Handler { return newAPI(t, client, provider) },
//			Request: func(key string) *http.Request { return paymentRequest(key, 1250) },
//			Effects: provider.Charges,
//		})
//	}
//
// Redis is embedded: the package starts a miniredis for each scenario, and moves its clock on where a lease has to run
// out. Nothing needs a network beside loopback. All scenarios together take about two seconds, most of them for Redis
// operations that have to time out.
package oncetest

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Case is what [Run] needs to know of a handler. Handler, Request and Effects are required.
type Case struct {
	// Handler returns your handler with all that is mounted around it: authentication, the middleware, a Recoverer. It
	// is called several times, once for each process that takes part, and each gets a client of its own for Redis. What
	// it starts it should stop by the test's Cleanup: the Locker, for example.
	Handler func(client redis.UniversalClient) http.Handler

	// Request returns the request that has the effect, such as the payment of a user. It is called for each try: with
	// the same key it must return the same request. Each scenario uses another key.
	Request func(key string) *http.Request

	// Effects returns how often the effect has happened since the program began: the rows of a table, the charges of a
	// fake provider. Only differences count. It is called concurrently, also while the handler runs, and must not wait
	// for something that a running handler holds, such as a mutex; a call that takes too long is as if nothing had
	// happened yet.
	Effects func() int

	// OtherRequest returns another request with the same key, such as another amount. It must not have an effect, nor
	// get the response of the first. By default nothing is tried.
	OtherRequest func(key string) *http.Request

	// OtherUser returns the same request with the same key from another user. It must have an effect of its own. By
	// default nothing is tried.
	OtherUser func(key string) *http.Request

	// Lease is the longest time for which a process that died keeps a key: the value of lock.WithTTL. The default is
	// that of package lock, 10 s.
	Lease time.Duration

	// RunsAgain accepts that the effect happens a second time after a crash or a panic whose outcome nobody knows, as
	// the middleware does without WithAtMostOnce and without a journal. By default that is a failure. A repetition that
	// comes before the lease has run out is one in any case.
	RunsAgain bool
}

// Run drives the handler through all scenarios, and reports each of them in which the effect did not happen exactly once
// by t.Errorf: what happened, and what to do about it. It returns when all are done. It panics if a required field of
// the Case is nil or Lease is negative. Run must be called in the test's own goroutine; several may run in parallel,
// with Cases whose Effects are independent.
//
// The scenarios are:
//
//   - double click: the second request comes while the handler runs the first.
//   - lost response: the client disconnects after the effect, and sends the request again.
//   - crash: the process dies after the effect, before Redis hears of it; when the lease has run out, the client sends
//     the request again to another process.
//   - panic: the handler panics after the effect, when it begins to answer. The client sends the request again at once,
//     and when the lease has run out.
//   - slow client: the client does not read the response, and sends the request again beside it.
//   - other request, other user: if the Case has them.
//
// The handler is called directly, without a server. Its ResponseWriter is an http.Flusher and no http.Hijacker. What Run
// does to a run, it does when Effects shows the effect: what happens before it is for your own tests.
func Run(t testing.TB, c Case) {
	t.Helper()
	c.check()
	for _, s := range scenarios {
		if s.applies != nil && !s.applies(&c) {
			continue
		}
		s.run(newStage(t, &c, s.name))
	}
}

func (c *Case) check() {
	switch {
	case c.Handler == nil:
		panic("oncetest.Run: Case.Handler is nil")
	case c.Request == nil:
		panic("oncetest.Run: Case.Request is nil")
	case c.Effects == nil:
		panic("oncetest.Run: Case.Effects is nil")
	case c.Lease < 0:
		panic("oncetest.Run: Case.Lease is negative")
	case c.Lease == 0:
		c.Lease = 10 * time.Second
	}
}
