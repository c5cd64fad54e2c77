// Package oncetest sends your own handler, with all its middlewares, through the cases in which a request comes twice:
// a double click, a lost response, a crash, a panic, a slow client. A test of one statement shows whether the effect,
// such as a payment, still happens only once:
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
// Redis is embedded: the package starts a miniredis for each scenario, and advances its clock by an hour where a lease has to
// run out. So leases (lock.WithTTL) must be shorter, and the retention longer. It uses no network but loopback. All scenarios
// together take a second or two.
//
// For a test of your own, see Example_testing in middleware/example_test.go: miniredis needs no server, and its FastForward
// ends a lease or a retention without a sleep.
package oncetest

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Case describes a handler for [Run]. Handler, Request and Effects are required.
type Case struct {
	// Handler returns your handler with all that is mounted around it: authentication, the middleware, a Recoverer. Run
	// calls it once for each simulated process, each time with another Redis client. What Handler starts, such as the
	// Locker, the test's Cleanup should stop.
	Handler func(client redis.UniversalClient) http.Handler

	// Request returns the request that has the effect, such as the payment of a user. Run calls it for each try: with
	// the same key it must return the same request. Each scenario uses another key.
	Request func(key string) *http.Request

	// Effects returns how often the effect has happened since the program began: the rows of a table, the charges of a
	// fake provider. Only differences count. Run calls it concurrently, also while the handler runs, so it must not
	// wait for a mutex that a running handler holds. If a call takes too long, Run assumes that nothing has happened
	// yet.
	Effects func() int

	// OtherRequest returns another request with the same key, such as another amount. It must not have an effect, nor
	// get the response of the first. If OtherRequest is nil, Run leaves its scenarios out.
	OtherRequest func(key string) *http.Request

	// OtherUser returns the same request with the same key from another user. It must have another effect. If OtherUser
	// is nil, Run leaves its scenario out.
	OtherUser func(key string) *http.Request

	// RunsAgain accepts that the effect happens a second time after a crash or a panic, as it does without
	// WithAtMostOnce and without a journal: the outcome of the first run is then unknown. By default that is a failure.
	// A second effect before the lease has run out is always a failure.
	RunsAgain bool

	// Limit is the longest time for all scenarios together. The default is 30 s. If an answer is missing then, Run fails
	// and leaves out the remaining scenarios.
	Limit time.Duration
}

// Run sends the handler through all scenarios, one after the other. If the effect does not happen exactly once, it
// calls t.Errorf with what happened and what to do about it. Run panics if a required field of the Case is nil. Call Run in the test's goroutine. Several may run in
// parallel if the Effects of their Cases are independent.
//
// The scenarios are:
//
//   - double click: the second request comes while the handler runs the first.
//   - lost response: the client disconnects after the effect, and sends the request again.
//   - crash: the process dies after the effect, before Redis hears of it; when the lease has run out, the client sends
//     the request again to another process.
//   - slow client: the client does not read the response, and sends the request again at the same time.
//   - other request, other user: if the Case has them.
//   - unknown length: as other request, with bodies that come in chunks, whose length is not known in advance. It finds a
//     middleware outside of middleware.Idempotency that reads the body: two different requests then look alike. A
//     handler may refuse such bodies with 411.
//   - panic: the handler panics after the effect, when it begins to answer. The client sends the request again at once,
//     and when the lease has run out. If the handler answers only by returning, the panic comes after that, and a
//     Recoverer inside the middleware is not found.
//
// Run calls the handler directly, without a server. Its ResponseWriter is an http.Flusher and no http.Hijacker. Run
// causes each fault only after Effects shows the effect: faults before the effect are for your own tests.
func Run(t testing.TB, c Case) {
	t.Helper()
	c.check()
	ends := time.Now().Add(c.Limit)
	var leftOut []string
	isOver := false
	for _, s := range scenarios {
		switch {
		case s.applies != nil && !s.applies(&c):
		case isOver:
			leftOut = append(leftOut, s.name)
		default:
			stage := newStage(t, &c, s.name, ends)
			s.run(stage)
			isOver = stage.isOver
		}
	}
	if len(leftOut) > 0 {
		t.Errorf("oncetest: left out: %s. If the handler does not hang, set a longer Case.Limit.", strings.Join(leftOut, ", "))
	}
}

func (c *Case) check() {
	if c.Handler == nil || c.Request == nil || c.Effects == nil {
		panic("oncetest.Run: Case.Handler, Request or Effects is nil")
	}
	c.Limit = cmp.Or(c.Limit, 30*time.Second)
}
