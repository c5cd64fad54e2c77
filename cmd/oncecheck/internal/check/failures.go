package check

import (
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// badBody returns a request that the server should refuse for its content.
func badBody(t *T) ask.Request {
	op := t.s.operation()
	r := t.s.request(op)
	switch {
	case t.s.BadBody != "":
		r.Body = []byte(op.Expand(t.s.BadBody))
	case strings.Contains(contentType(t.s.Body), "json"):
		r.Body = []byte(`{"oncecheck":`)
	default:
		t.NotAsked("the body is not JSON: give -bad-d, a body that the server refuses")
	}
	return r
}

// refusedBody sends a request that is refused for its content.
func refusedBody(t *T) (ask.Request, ask.Exchange) {
	r := badBody(t)
	e := t.SendPatiently(r)
	t.skipIf(!isRefusal(e), "the server does not refuse the bad body (%s): give -bad-d, one that it refuses", e)
	return r, e
}

func errorsValidation(t *T) {
	refusedBody(t)
	t.Success(t.SendPatiently(t.s.fresh()))
}

// failures has an operation that fails, and its repetitions until three tries were answered, with each query of -fail.
func failures(t *T, judge func(trial)) { eachQuery(t, "failure ", t.s.Fail, fail, judge) }

// fail sends an operation that fails, and repeats it. What is refused as in flight is no try, unless nothing else comes.
func fail(t *T, query string) trial {
	r, w := t.s.fresh().Query(query), t.Watch()
	tries := []ask.Exchange{t.Send(r)}
	t.skipIf(tries[0].Success(), "with -fail %q the server did not fail: %s", query, tries[0])
	var conflict []ask.Exchange
	deadline := time.Now().Add(t.s.Patience)
	for wait := 50 * time.Millisecond; len(tries) < 3 && time.Now().Before(deadline); wait = min(2*wait, time.Second) {
		e := t.s.Client.Do(t.ctx, r)
		if t.s.Statuses.isInFlight(e) {
			conflict = []ask.Exchange{e}
			t.refused("in flight", e)
		} else {
			tries = append(tries, t.keep(e)...)
		}
		t.Pause(wait)
	}
	if len(tries) < 2 {
		tries = append(tries, conflict...)
	}
	return w.try(min(1, successes(tries...)), tries...)
}
