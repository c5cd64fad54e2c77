package check

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// twice sends the requests one after the other, the first of which must be a success, and fails unless they have one
// effect. It returns the second.
func twice(t *T, first, second ask.Request) ask.Exchange {
	w := t.Watch()
	w.See(t.First(first))
	last := t.Send(second)
	w.See(last)
	w.Once()
	return last
}

func onceRepeat(t *T) {
	r := t.s.fresh()
	twice(t, r, r)
}

// later is a request and its repetition after two seconds, when the clock of a Date has moved on.
func later(t *T) trial {
	const wait = 2100 * time.Millisecond
	return shared(t, "later", func() trial {
		r, w := t.s.fresh(), t.Watch()
		first := t.First(r)
		t.Pause(wait)
		r.Before = fmt.Sprint("sleep ", wait.Seconds())
		return w.try(1, first, t.Send(r))
	})
}

func onceRepeatLater(t *T) { t.Once(later(t).effects) }

func onceInstancesRepeat(t *T) {
	op := t.s.operation()
	r := t.s.request(op)
	twice(t, r, at(r, t.s.Also, op))
}

func onceHTTP2(t *T) {
	r := t.s.fresh()
	probe := r.Bare(http.MethodGet).Without(t.s.KeyHeader)
	probe.HTTP2 = true
	if e := t.Send(probe); e.Response == nil {
		t.NotAsked("the server does not speak HTTP/2 here")
	}
	over2 := func(r ask.Request) ask.Request {
		r.HTTP2, r.Note = true, "over HTTP/2"
		return r
	}
	twice(t, r, over2(r))
	sendTogether(t, 10, false, over2).judge(t)
}

// withBody returns the request of a new operation, and ends the check if that has no body.
func withBody(t *T) ask.Request {
	r := t.s.fresh()
	t.skipIf(len(r.Body) == 0, "the request has no body: give -d")
	return r
}

func onceExpectContinue(t *T) {
	r := withBody(t)
	r.Expect = true
	w := t.Watch()
	first := t.SendPatiently(r)
	t.Success(first)
	w.See(first, t.Send(r))
	w.Once()
}

func onceChunked(t *T) {
	for _, chunkedFirst := range []bool{false, true} {
		first := withBody(t)
		second := first
		chunked := &second
		if chunkedFirst {
			chunked = &first
		}
		chunked.Chunked, chunked.Note = true, "in chunks"
		if other := twice(t, first, second); has(t.s.Statuses.Reused, other) {
			t.Failf("the first's response", "%s, as for another request", other)
		}
	}
}

// departures has requests whose client leaves before the answer, and their repetitions: with each query of -slow, or plain.
func departures(t *T, judge func(trial)) {
	queries := t.s.Slow
	if queries == nil {
		queries = []string{""}
	}
	eachQuery(t, "departure ", queries, leave, judge)
}

func leave(t *T, query string) trial {
	stay := meanwhile(t, query)
	var r ask.Request
	var w *watch
	var left ask.Exchange
	inTime(t, func() bool {
		r, w = t.s.fresh().Query(query), t.Watch()
		leaving := r
		leaving.Note, leaving.Leaves = "the client leaves before the answer", max(t.s.slow[query]/2, 50*time.Millisecond)
		left = t.keep(t.s.Client.Leave(t.ctx, leaving, stay))[0]
		return query == "" || !errors.Is(left.Err, ask.ErrAnswered)
	})
	r.Note = "until it is answered"
	return w.try(1, left, t.Settle(r))
}

// onceSettled repeats a request whose answer may be lost until it is answered, and fails unless there was one effect.
func onceSettled(t *T, w *watch, r ask.Request) {
	r.Note = "until it is answered"
	settled := t.SettleAnswered(r)
	w.See(settled)
	t.skipIf(!settled.Success() && !t.s.countsEffects(), "the repetition was no success (%s), and without -effects nobody can see whether the first was", settled)
	w.Once()
}

// disturbed sends a new operation by send, in rounds, and repeats it until it is answered: one effect each.
func disturbed(note string, rounds int, send func(*T, ask.Request) []ask.Exchange) func(*T) {
	return func(t *T) {
		for range rounds {
			t.sent = nil
			r, w := t.s.fresh(), t.Watch()
			noted := r
			noted.Note = note
			w.See(send(t, noted)...)
			onceSettled(t, w, r)
		}
	}
}

func onceAnswerLost(t *T) {
	disturbed("the answer is lost", 1, func(t *T, r ask.Request) []ask.Exchange { return []ask.Exchange{t.Send(r)} })(t)
	if t.s.countsEffects() { // without an id of the first, another run could not be seen
		disturbed("the connection breaks in the answer", 1, func(t *T, r ask.Request) []ask.Exchange {
			return t.keep(t.s.Client.Leave(t.ctx, r, t.s.Client.Timeout()))
		})(t)
	}
}

func inTurn(t *T, r ask.Request) []ask.Exchange { return []ask.Exchange{t.Send(r), t.Send(r)} }

func atOnce(t *T, r ask.Request) []ask.Exchange { return t.SendAll([]ask.Request{r, r}) }

func onceRequestCut(t *T) {
	r := withBody(t)
	w := t.Watch()
	cut := t.keep(t.s.Client.Cut(t.ctx, r))[0]
	cut.Request = cut.Request.With("Content-Length", strconv.Itoa(len(r.Body)))
	cut.Request.Note, cut.Request.Body, cut.Request.Leaves = "the request is cut in its body", r.Body[:len(r.Body)/2], time.Second
	whole := t.Settle(r)
	t.Show(cut, whole)
	t.failIf(!whole.Success(), "a success for the whole request", "%s", whole)
	w.Once()
}

// wantTwoOfEqual ends the check if the same body under two keys is one operation to the service.
func wantTwoOfEqual(t *T) {
	t.skipIf(t.s.equalIsOne, "the same body under another key does nothing more: to the service, equal requests are one")
}

func onceKeysDiffer(t *T) {
	wantTwoOfEqual(t)
	op := t.s.operation()
	other := op
	other.Key = ask.UUID()
	w := t.Watch()
	tr := w.try(2, t.First(t.s.request(op)), t.Send(t.s.request(other)))
	t.skipIf(!tr.last().Success(), "the same body under another key was no success: %s: the service may not take equal orders", tr.last())
	t.failIf(tr.effects != 2, "two effects", "%s", effects(tr.effects))
}
