package middleware

import (
	"strconv"
	"strings"
	"time"
)

// answer is a response that the middleware gives instead of the handler's: a problem, or a stored response. Each step
// that can refuse a request returns one, or nil if the next step follows. Only call.respond writes it. An answer is not
// changed once it is made, because requests share some of them.
type answer struct {
	outcome    Outcome
	problem    *Problem      // nil if replays, and of a request unprotected in shadow; not changed: requests share it
	retryAfter time.Duration // replaces the problem's RetryAfter, unless it is 0
	replays    bool          // the response is call.replayed
	err        error         // for the Event
}

// refuse returns the answer that is the problem p.
func refuse(outcome Outcome, p *Problem, err error) *answer {
	return &answer{outcome: outcome, problem: p, err: err}
}

// The answers that are made once.
var (
	replayAnswer = &answer{outcome: Replayed, replays: true} // with the response in call.replayed
	reusedAnswer = refuse(Reused, &keyReused, nil)
)

// isMismatch reports whether the answer says that the key belongs to another request.
func (a *answer) isMismatch() bool {
	return a.outcome == Reused || a.outcome == FingerprintChanged
}

// respond sends a, and emits the Event.
func (c *call) respond(a *answer) {
	c.limitedBody.prepareAnswer(c.r)
	if !a.replays {
		p := *a.problem
		if a.retryAfter > 0 {
			p.RetryAfter = a.retryAfter
		}
		defer c.emit(a.outcome, p.Status, a.err) // even if a WithProblem panics
		c.tellOuter(p)
		p.Instance = instance(c.storageKey())
		c.writeRefusal(p)
		return
	}
	defer c.emit(a.outcome, c.replayed.Stored.Status, a.err)
	c.replayed.Stored.WriteTo(c.w, c.r)
	c.replayed.Free() // not after a panic of w, which may still have it
}

// instancePrefix is what a Problem's Instance begins with.
const instancePrefix = "urn:onceguard:key:"

// instance returns the Instance of a problem about a key, by which support staff find the key: the hash alone, because
// clients need not see the namespace.
func instance(storageKey string) string {
	if storageKey == "" {
		return ""
	}
	return instancePrefix + storageKey[strings.LastIndexByte(storageKey, '}')+1:]
}

// tellOuter is called before a refusal that this request gets inside of another run, under another key. If a retry may
// succeed, the outer run should not store what its handler makes of the refusal, so tellOuter calls Discard for it.
// With [WithAtMostOnce] it does not: the outer handler may have had an effect before.
func (c *call) tellOuter(p Problem) {
	if outer := FromContext(c.r.Context()); p.Retryable && outer != nil && !outer.atMostOnce {
		_ = outer.Discard() // fails if the outer handler has sent a response or called Keep or Unknown
	}
}

// draft specifies the Idempotency-Key header. Every problem links to it. Version -07 expired on 2026-04-18 and stays
// readable at this address.
const draft = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07"

// writeRefusal writes p, with the header fields that all problems have.
func (c *call) writeRefusal(p Problem) {
	pause := strconv.Itoa(max(1, int(p.RetryAfter/time.Second)))
	h, own := c.w.Header(), []string{"no-store", strconv.FormatBool(p.Retryable), pause} // one allocation for all
	h["Cache-Control"], h["X-Should-Retry"] = own[:1:1], own[1:2:2]
	if p.Retryable {
		h["Retry-After"] = own[2:]
	}
	h.Add("Link", "<"+draft+`>; rel="describedby"`)
	c.guard.writeProblem(c.w, c.r, p)
}
