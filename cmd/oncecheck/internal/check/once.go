package check

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// twice sends the requests one after the other, the first of which must be a success, and fails unless they have one
// effect.
func (t *T) twice(first, second ask.Request) {
	w := t.Watch()
	w.See(t.First(first))
	w.See(t.Send(second))
	w.Once()
}

func onceRepeat(t *T) {
	r := t.s.request(t.s.operation())
	t.twice(r, r)
}

// later is a request and its repetition after two seconds, when the clock of a Date has moved on.
func (t *T) later() trial {
	const wait = 2100 * time.Millisecond
	tried := memo(t, "later", func() trial {
		r := t.s.request(t.s.operation())
		w := t.Watch()
		tried := trial{first: t.First(r)}
		if err := pause(t.ctx, wait); err != nil {
			t.NotAsked("%v", err)
		}
		r.Before = fmt.Sprint("sleep ", wait.Seconds())
		tried.second = t.Send(r)
		w.See(tried.first, tried.second)
		if t.s.SeesEffects() {
			tried.effects = w.Effects(1)
		}
		return tried
	})
	t.Show(tried.first, tried.second)
	return tried
}

func onceRepeatLater(t *T) {
	if tried := t.later(); tried.effects != 1 {
		t.Failf("one effect", "%s", effects(tried.effects))
	}
}

func onceInstancesRepeat(t *T) {
	op := t.s.operation()
	r := t.s.request(op)
	t.twice(r, at(r, t.s.Also, op))
}

func onceHTTP2(t *T) {
	r := t.s.request(t.s.operation())
	probe := r.Bare(http.MethodGet).Without(t.s.KeyHeader)
	probe.HTTP2 = true
	if e := t.Send(probe); e.Response == nil {
		t.NotAsked("the server does not speak HTTP/2 here")
	}
	over2 := r
	over2.HTTP2, over2.Note = true, "over HTTP/2"
	t.twice(r, over2)
	t.together(10, false, func(r ask.Request) ask.Request {
		r.HTTP2, r.Note = true, "over HTTP/2"
		return r
	}).judge(t)
}

func onceExpectContinue(t *T) {
	r := t.s.request(t.s.operation())
	if len(r.Body) == 0 {
		t.NotAsked("the request has no body: give -d")
	}
	r.Expect = true
	w := t.Watch()
	first := t.SendPatiently(r)
	if !first.Success() {
		t.Failf("a success", "%s", first)
	}
	w.See(first, t.Send(r))
	w.Once()
}

func onceChunked(t *T) {
	for _, chunkedFirst := range []bool{false, true} {
		plain := t.s.request(t.s.operation())
		if len(plain.Body) == 0 {
			t.NotAsked("the request has no body: give -d")
		}
		chunked := plain
		chunked.Chunked, chunked.Note = true, "in chunks"
		first, second := plain, chunked
		if chunkedFirst {
			first, second = chunked, plain
		}
		w := t.Watch()
		one := t.First(first)
		other := t.Send(second)
		w.See(one, other)
		w.Once()
		if t.isReused(other) {
			t.Failf("the first's response", "%s, as for another request", other)
		}
	}
}

// isReused reports whether the response refuses the request as another one under a used key.
func (t *T) isReused(e ask.Exchange) bool {
	return e.Response != nil && slices.Contains(t.s.Statuses.Reused, e.Response.Status)
}

// departure is a request whose client leaves before the answer, and its repetition.
type departure struct {
	left, settled ask.Exchange
	effects       int
}

// eachDeparture calls judge for the departure from the request with each query of -slow, or from the plain one.
func (t *T) eachDeparture(judge func(d departure)) {
	queries := t.s.Slow
	if queries == nil {
		queries = []string{""}
	}
	for _, query := range queries {
		d := memo(t, "departure "+query, func() departure { return t.leave(query) })
		t.Show(d.left, d.settled)
		judge(d)
	}
}

func (t *T) leave(query string) (d departure) {
	stay := t.meanwhile(query)
	var r ask.Request
	var w *watch
	t.inTime(func() bool {
		r, w = t.s.request(t.s.operation()).Query(query), t.Watch()
		left := r
		left.Note, left.Leaves = "the client leaves before the answer", max(t.s.slow[query]/2, 50*time.Millisecond)
		d.left = t.keep(t.s.Client.Leave(t.ctx, left, stay))[0]
		return query == "" || !errors.Is(d.left.Err, ask.ErrAnswered)
	})
	r.Note = "until it is answered"
	d.settled = t.Settle(r)
	if t.s.CountsEffects() {
		d.effects = w.Effects(1)
	}
	return d
}

func onceClientLeaves(t *T) {
	t.eachDeparture(func(d departure) {
		if d.effects != 1 {
			t.Failf("one effect", "%s", effects(d.effects))
		}
	})
}

func onceClientLeavesAnswered(t *T) {
	t.eachDeparture(func(d departure) {
		if d.settled.Response == nil || t.isInFlight(d.settled) {
			t.Failf("an answer", "%s after %v", d.settled, t.s.Patience)
		}
	})
}

// onceSettled repeats the request until it is answered, and fails unless there was one effect.
func (t *T) onceSettled(w *watch, r ask.Request) {
	r.Note = "until it is answered"
	settled := t.Settle(r)
	w.See(settled)
	if !settled.Success() && !t.s.CountsEffects() {
		t.NotAsked("the repetition was no success (%s), and without -effects nobody can see whether the first was", settled)
	}
	w.Once()
}

// onceAnswerLost sends a request whose answer nobody reads: all of it is lost, or the connection is closed at its first byte.
func onceAnswerLost(t *T) {
	r := t.s.request(t.s.operation())
	w, noted := t.Watch(), r
	noted.Note = "the answer is lost"
	w.See(t.Send(noted))
	t.onceSettled(w, r)
	if !t.s.CountsEffects() {
		return // without an id of the first, another run cannot be seen
	}
	t.sent, r, w = nil, t.s.request(t.s.operation()), t.Watch()
	noted = r
	noted.Note = "the connection breaks in the answer"
	t.keep(t.s.Client.Leave(t.ctx, noted, t.s.Client.Timeout()))
	t.onceSettled(w, r)
}

func onceSentTwice(t *T) {
	r := t.s.request(t.s.operation())
	w, noted := t.Watch(), r
	noted.Note = "a proxy sends it twice"
	w.See(t.Send(noted), t.Send(noted))
	t.onceSettled(w, r)
}

func onceSentTwiceAtOnce(t *T) {
	for range 5 {
		t.sent = nil
		r := t.s.request(t.s.operation())
		w, noted := t.Watch(), r
		noted.Note = "a proxy sends it twice at once"
		w.See(t.SendAll([]ask.Request{noted, noted})...)
		t.onceSettled(w, r)
	}
}

func onceRequestCut(t *T) {
	r := t.s.request(t.s.operation())
	if len(r.Body) == 0 {
		t.NotAsked("the request has no body: give -d")
	}
	w := t.Watch()
	cut := t.keep(t.s.Client.Cut(t.ctx, r))[0]
	cut.Request = cut.Request.With("Content-Length", strconv.Itoa(len(r.Body)))
	cut.Request.Note, cut.Request.Body, cut.Request.Leaves = "the request is cut in its body", r.Body[:len(r.Body)/2], time.Second
	whole := t.Settle(r)
	t.Show(cut, whole)
	if !whole.Success() {
		t.Failf("a success for the whole request", "%s", whole)
	}
	w.Once()
}

func onceKeysDiffer(t *T) {
	op := t.s.operation()
	w := t.Watch()
	first := t.First(t.s.request(op))
	op.Key = ask.UUID()
	second := t.Send(t.s.request(op))
	w.See(first, second)
	if !second.Success() {
		t.NotAsked("the same body under another key was no success: %s: the service may not take equal orders", second)
	}
	if n := w.Effects(2); n != 2 {
		t.Failf("two effects", "%s", effects(n))
	}
}
