package middleware

import (
	"strconv"
	"time"
)

// answer is what a request gets that is not answered by a run of its own: a problem, or a stored response. The zero answer
// means that the request goes on. Every step that can refuse a request returns one; [call.answer] alone writes it.
type answer struct {
	outcome Outcome
	problem Problem // without a stored response
	err     error   // of the Event
	replays bool    // with call.replayed
}

func refusal(outcome Outcome, p Problem, err error) answer {
	return answer{outcome: outcome, problem: p, err: err}
}

// given reports whether there is an answer: the request does not go on.
func (a *answer) given() bool { return a.outcome != "" }

// answer writes a, and tells the observer.
func (c *call) answer(a *answer) {
	c.limited.refused(c.r)
	if !a.replays {
		defer c.emit(a.outcome, a.problem.Status, a.err) // even if a WithProblem panics
		c.tellOuter(a.problem)
		c.writeRefusal(a.problem)
		return
	}
	defer c.emit(a.outcome, c.replayed.Stored.Status, a.err)
	c.replayed.Stored.WriteTo(c.w, c.r)
	c.replayed.Free() // not after a panic of w, which may still have it
}

// tellOuter keeps a run around this one, under another key, from storing a refusal that a retry may overcome. One with
// [WithAtMostOnce] stores it all the same: its handler may have had an effect before it came here.
func (c *call) tellOuter(p Problem) {
	if outer := FromContext(c.r.Context()); p.Retryable && outer != nil && !outer.atMostOnce {
		_ = outer.Discard() // a committed response is not this one
	}
}

// draft describes the header that all of this is about.
const draft = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07"

func (c *call) writeRefusal(p Problem) {
	h := c.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Add("Link", "<"+draft+`>; rel="describedby"`)
	h.Set("X-Should-Retry", strconv.FormatBool(p.Retryable))
	if p.Retryable {
		h.Set("Retry-After", strconv.Itoa(max(1, int(p.RetryAfter/time.Second))))
	}
	c.guard.writeProblem(c.w, c.r, p)
}
