package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/proxy"
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
	const id, wait = "later", 2100 * time.Millisecond
	if known, ok := t.s.shared.trials[id]; ok {
		t.sent = append(t.sent, known.first, known.second)
		return known
	}
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
	t.s.shared.trials[id] = tried
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
	})
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

func (t *T) departure() *departure {
	t.once("departure", t.s.shared.departure != nil, func() {
		stay := t.meanwhile()
		d := new(departure)
		var r ask.Request
		var w *watch
		t.inTime(func() bool {
			r, w = t.s.request(t.s.operation()).Query(t.s.Slow), t.Watch()
			left := r
			left.Note, left.Leaves = "the client leaves before the answer", max(t.s.slow/2, 50*time.Millisecond)
			d.left = t.keep(t.s.Client.Leave(t.ctx, left, stay))[0]
			return t.s.Slow == "" || !errors.Is(d.left.Err, ask.ErrAnswered)
		})
		r.Note = "until it is answered"
		d.settled = t.Settle(r)
		if t.s.CountsEffects() {
			d.effects = w.Effects(1)
		}
		t.s.shared.departure = d
	})
	d := t.s.shared.departure
	t.Show(d.left, d.settled)
	return d
}

func onceClientLeaves(t *T) {
	if d := t.departure(); d.effects != 1 {
		t.Failf("one effect", "%s", effects(d.effects))
	}
}

func onceClientLeavesAnswered(t *T) {
	if d := t.departure(); d.settled.Response == nil || t.isInFlight(d.settled) {
		t.Failf("an answer", "%s after %v", d.settled, t.s.Patience)
	}
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

// faulty returns the check that a request through a proxy with the fault, and then directly, has one effect. It asks
// several times, each with a new operation.
func faulty(fault proxy.Fault, rounds int, note string) func(*T) {
	return func(t *T) {
		for range rounds {
			r := t.s.request(t.s.operation())
			w := t.Watch()
			seen := t.through(fault, r, note)
			w.See(seen...)
			t.sent = seen
			t.onceSettled(w, r)
		}
	}
}

func onceRequestCut(t *T) {
	r := t.s.request(t.s.operation())
	if len(r.Body) == 0 {
		t.NotAsked("the request has no body: give -d")
	}
	w := t.Watch()
	t.through(proxy.CutRequest, r, "a proxy cuts the request in its body")
	cut := t.sent[0]
	cut.Request = cut.Request.With("Content-Length", strconv.Itoa(len(r.Body)))
	cut.Request.Body, cut.Request.Leaves = r.Body[:len(r.Body)/2], time.Second
	whole := t.Settle(r)
	t.Show(cut, whole)
	if !whole.Success() {
		t.Failf("a success for the whole request", "%s", whole)
	}
	w.Once()
}

// through sends the request through a proxy with the fault. It returns what the server has answered, also where the
// client has not seen it, or else what the client has seen.
func (t *T) through(fault proxy.Fault, r ask.Request, note string) (seen []ask.Exchange) {
	if fault == proxy.TwiceAtOnce {
		t.needParallel(2)
	}
	if fault == proxy.Twice || fault == proxy.TwiceAtOnce {
		t.s.Client.Spend(1)
	}
	p, err := proxy.Start(func(ctx context.Context) (net.Conn, error) { return t.s.Client.Dial(ctx, r) }, fault)
	if err != nil {
		t.NotAsked("the proxy does not start: %v", err)
	}
	defer p.Close()
	r.Via, r.Note, r.AtOnce = p.Addr(), note, fault == proxy.TwiceAtOnce
	e := t.Send(r)
	for _, raw := range p.Answers() {
		if answer, err := ask.Parse(raw, r.Method); err == nil {
			seen = append(seen, ask.Exchange{Request: r, Response: answer})
		}
	}
	if seen == nil {
		return []ask.Exchange{e}
	}
	return seen
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
