package check

import (
	"slices"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// inflightChecks has the checks of a duplicate while the first runs.
var inflightChecks = []Check{
	// An operation with -slow, and two more while it runs (without -slow: ten at once): each is the in-flight status (409),
	// or a success with the first's body.
	row(Must, "inflight/answer", "a duplicate of a running request gets a conflict, or the first's response",
		0, inflightAnswer, Draft26, Draft27),
	// After inflight/answer there is one effect.
	row(Must, "inflight/once", "a duplicate of a running request does not run",
		Effects, judged(inflight, hadOne), Draft26),
	// Every duplicate of inflight/answer is answered within -timeout.
	row(Should, "inflight/time", "a duplicate is answered in time",
		0, inflightTime, Draft27),
	// The in-flight refusal has a Retry-After. Not asked if duplicates wait for the answer.
	row(Advice, "inflight/retry-after", "the conflict says when to try again",
		0, inflightRetryAfter, "RFC 9110, section 10.2.3 (Retry-After)"),
	// After the success of inflight/answer: the same again, until it is no conflict, is a success with the first's body.
	row(Should, "inflight/then-replay", "after the first has ended, its duplicate gets its response",
		0, func(t *T) {
			tr := inflight(t)
			t.same(tr.first(), tr.last())
		}, Draft26),
}

// inflight is a slow operation, duplicates of it, and its repetition in the end.
func inflight(t *T) trial {
	if t.Slow == nil {
		t.say(sentAtOnce)
	}
	return shared(t, "inflight", sendInflight)
}

func sendInflight(t *T) trial {
	n := 2
	if t.Slow == nil {
		n = 9
	}
	all, w := during(t, func(r ask.Request) []ask.Request { return slices.Repeat([]ask.Request{r}, n) })
	t.skipIf(!all[0].Success(), "the first request was no success: %s", all[0])
	r := all[0].Request
	r.Note, r.AtOnce, r.Runs = "", false, false
	return w.try(1, append(all, t.restWhile(r, t.Statuses.mayChange))...)
}

// duplicates returns those of the running operation, and shows no more.
func duplicates(t *T) (first ask.Exchange, others []ask.Exchange) {
	sent := inflight(t).sent
	last := len(sent) - 1
	t.show(sent[:last]...)
	return sent[0], sent[1:last]
}

func inflightAnswer(t *T) {
	first, others := duplicates(t)
	answered := 0
	for _, e := range others {
		if e.Response != nil {
			answered++
			isRight := t.Statuses.isInFlight(e) || sameBody(first, e)
			t.failIf(!isRight, statuses(t.Statuses.InFlight)+", or the first's response", "%s", e)
		}
	}
	t.skipIf(answered == 0, "no duplicate was answered within -timeout")
}

func inflightTime(t *T) {
	_, others := duplicates(t)
	for _, e := range others {
		t.failIf(e.Response == nil, "an answer", "%s", e)
	}
}

func inflightRetryAfter(t *T) {
	first, others := duplicates(t)
	i := slices.IndexFunc(others, t.Statuses.isInFlight)
	t.skipIf(i < 0, "no duplicate was refused as in flight")
	t.show(first, others[i])
	t.failIf(others[i].Response.Header.Get("Retry-After") == "", "Retry-After", "none")
}
