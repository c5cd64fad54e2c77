package check

import (
	"net/http"
	"slices"
	"strconv"
	"time"

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
		0, inflightRetryAfter, RetryAfter),
	// If it is there: a whole number from 1 to 300, or a date at most 300 s ahead and not past.
	row(Should, "inflight/retry-after-sane", "Retry-After of the conflict is a sane number of seconds",
		0, inflightRetryAfterSane, RetryAfter),
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
	return shared(t, "inflight", func(t *T) trial {
		n := 2
		if t.Slow == nil {
			n = 9
		}
		all, w := during(t, func(r ask.Request) []ask.Request { return slices.Repeat([]ask.Request{r}, n) })
		t.skipIf(!all[0].Success(), "the first request was no success: %s", all[0])
		r := all[0].Request
		r.Note, r.AtOnce, r.Runs = "", false, false
		return w.try(1, append(all, t.restWhile(r, t.Statuses.mayChange))...)
	})
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

// conflict returns the header of a duplicate that was refused as in flight.
func conflict(t *T) http.Header {
	first, others := duplicates(t)
	i := slices.IndexFunc(others, t.Statuses.isInFlight)
	t.skipIf(i < 0, "no duplicate was refused as in flight")
	t.show(first, others[i])
	return others[i].Response.Header
}

func inflightRetryAfter(t *T) {
	t.failIf(conflict(t).Get("Retry-After") == "", "Retry-After", "none")
}

func inflightRetryAfterSane(t *T) {
	h := conflict(t)
	value := h.Get("Retry-After")
	t.skipIf(value == "", "the refusal has no Retry-After")
	seconds, ok := retryAfter(value, h)
	isSane := ok && seconds >= 1 && seconds <= 300
	t.failIf(!isSane, "a whole number of seconds from 1 to 300, or such a date", "%s", quote(value))
}

// retryAfter returns the seconds of a Retry-After. Those of a date are counted from the response's own Date.
func retryAfter(value string, h http.Header) (seconds int, ok bool) {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return int(n), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return int(at.Sub(now) / time.Second), true
}
