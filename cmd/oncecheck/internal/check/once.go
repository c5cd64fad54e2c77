package check

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// onceChecks has the checks of a request that is repeated, also when its way, or its answer's, is disturbed.
var onceChecks = []Check{
	// A request, its answer, the same request: one effect.
	row(Must, "once/repeat", "a repetition does not run again",
		Effects, onceRepeat, Draft26),
	// A request, its answer, a pause of 2.1 s, the same request: one effect.
	row(Must, "once/repeat-later", "a repetition after two seconds does not run again",
		Effects, judged(later, hadOne), Draft26),
	// The last bytes of two are sent at once, ten times; those of ten, four times; those of fifty, twice: one effect each,
	// and all successes have one body.
	row(Must, "once/concurrent", "requests at the same instant have one effect",
		Effects, concurrent(false), Draft26).
		was("once/concurrent-2 once/concurrent-10 once/concurrent-50"),
	// A request to the first instance, its answer, the same to -also: one effect.
	row(Must, "once/instances-repeat", "a repetition on another instance does not run again",
		Effects|Also, onceInstancesRepeat, Draft26),
	// As once/concurrent, alternating between the instances.
	row(Must, "once/instances-concurrent", "requests at the same instant on two instances have one effect",
		Effects|Also, concurrent(true), Draft26).
		was("once/instances-concurrent-2 once/instances-concurrent-10 once/instances-concurrent-50"),
	// A request over HTTP/1.1, the same over HTTP/2, and ten at once over HTTP/2: one effect each. Not asked if the server
	// has no HTTP/2.
	row(Must, "once/http2", "over HTTP/2 a repetition does not run again",
		Effects, onceHTTP2, Draft26),
	// A request with Expect: 100-continue, whose body follows when asked for or after a second; then the same: a success,
	// and one effect.
	row(Must, "once/expect-continue", "with Expect: 100-continue a repetition does not run again",
		Effects, onceExpectContinue, Expect),
	// A request with Content-Length, the same with Transfer-Encoding: chunked, and the other way round: one effect, and no
	// refusal as another request.
	row(Must, "once/chunked", "a repetition in chunks is the same request",
		Effects, onceChunked, MessageBody),
	// A request whose connection is closed as soon as its last byte is sent (with -slow while the server works); the same
	// until it is answered: one effect.
	row(Must, "once/client-leaves", "a request whose client left before the answer does not run again",
		Counted, departures.judged(hadOne), Draft26, RetryRequests),
	// As once/client-leaves: within -patience an answer that is no in-flight refusal.
	row(Should, "once/client-leaves-answered", "a client that left before the answer gets one when it repeats",
		0, departures.judged(wasAnswered), Draft26, Draft27),
	// A request whose answer is thrown away, and (with -effects) one whose connection is closed at the first byte of its
	// answer. Then the same until it is answered: one effect each.
	row(Must, "once/answer-lost", "a request whose answer was lost or cut does not run again",
		Effects, onceAnswerLost, Draft26, RetryRequests, Incomplete).
		was("once/answer-cut-in-head once/answer-cut-in-body"),
	// The head and half of the body, and the connection ends; the whole request until it is answered: a success, and one
	// effect.
	row(Must, "once/request-cut", "a request that was cut in its body runs once when it is repeated whole",
		Counted, onceRequestCut, Incomplete),
	// The request, its answer and the request again, as a proxy that retries sends them (nginx proxy_next_upstream, Go's
	// http.Transport); then the same until it is answered: one effect.
	row(Must, "once/sent-twice", "a request that a proxy sends again has one effect",
		Effects, disturbed("a proxy sends it twice", 1, inTurn), Draft26),
	// The request on two connections, the last bytes at one instant, as a proxy that hedges sends it; then the same until it
	// is answered; five rounds: one effect each.
	row(Must, "once/sent-twice-at-once", "a request that a proxy sends twice at the same time has one effect",
		Effects, disturbed("a proxy sends it twice at once", 5, atOnce), Draft26),
	// The request with each -sample, its answer, the same again: one effect each. Not asked if one is no success, or has no
	// effect.
	row(Must, "once/samples", "a repetition with each -sample does not run again",
		Samples|Effects, onceSamples, Draft26),
	// The same body under two keys: both run (two effects, or two ids). Not asked if equal requests are one to the service,
	// whatever their keys: it creates no second one, or refuses it.
	row(Must, "once/keys-differ", "the same body under another key is another operation",
		Effects, onceKeysDiffer, Draft22),
}

// twice sends the requests one after the other, the first of which must be a success, and fails unless they have one
// effect. It returns the second.
func twice(t *T, first, second ask.Request) ask.Exchange {
	w := t.watch()
	tr := w.try(1, t.first(first), t.send(second))
	hadOne(t, tr)
	return tr.last()
}

func onceRepeat(t *T) {
	r := t.fresh()
	twice(t, r, r)
}

// later is a request and its repetition after two seconds, when the clock of a Date has moved on.
func later(t *T) trial {
	const wait = 2100 * time.Millisecond
	return shared(t, "later", func(t *T) trial {
		r, w := t.fresh(), t.watch()
		first := t.first(r)
		t.pause(wait)
		r.Before = fmt.Sprint("sleep ", wait.Seconds())
		return w.try(1, first, t.send(r))
	})
}

func onceInstancesRepeat(t *T) {
	r := t.fresh()
	twice(t, r, at(r, t.Also))
}

func onceHTTP2(t *T) {
	r := t.fresh()
	over2 := func(r ask.Request) ask.Request {
		r.HTTP2, r.Note = true, "over HTTP/2"
		return r
	}
	probe := t.send(over2(r.Bare(http.MethodGet).Without(t.KeyHeader)))
	t.skipIf(probe.Response == nil, "the server does not speak HTTP/2 here")
	twice(t, r, over2(r))
	sendTogether(t, 10, over2(t.fresh()), false)
}

// withBody returns the request of a new operation, and ends the check if that has no body.
func withBody(t *T) ask.Request {
	r := t.fresh()
	t.skipIf(len(r.Body) == 0, "the request has no body: give -d")
	return r
}

func onceExpectContinue(t *T) {
	r, w := withBody(t), t.watch()
	r.Expect = true
	first := t.patient(r)
	t.success(first)
	hadOne(t, w.try(1, first, t.send(r)))
}

func onceChunked(t *T) {
	for i := range 2 {
		r := withBody(t)
		both := []ask.Request{r, r}
		both[i].Chunked, both[i].Note = true, "in chunks"
		again := twice(t, both[0], both[1])
		t.failIf(has(t.Statuses.Reused, again), "the first's response", "%s, as for another request", again)
	}
}

// departures are requests whose client leaves before the answer, and their repetitions: with each query of -slow, or plain.
var departures = plot{"departure", func(s *Session) []string {
	if s.Slow == nil {
		return []string{""}
	}
	return s.Slow
}, leave}

func leave(t *T, query string) trial {
	stay := meanwhile(t, query)
	var r ask.Request
	var w *watch
	var left ask.Exchange
	inTime(t, func() bool {
		r, w = t.fresh().Query(query), t.watch()
		leaving := r
		leaving.Note, leaving.Leaves = "the client leaves before the answer", max(t.slow[query]/2, 50*time.Millisecond)
		left = t.keep(t.Client.Leave(t.ctx, leaving, stay))[0]
		return query == "" || !errors.Is(left.Err, ask.ErrAnswered)
	})
	r.Note = untilAnswered
	return w.try(1, left, t.settle(r))
}

const untilAnswered = "until it is answered"

// disturbed sends a new operation by send, in rounds, and repeats it until it is answered: one effect each.
func disturbed(note string, rounds int, send func(*T, ask.Request) []ask.Exchange) func(*T) {
	return func(t *T) {
		for range rounds {
			t.sent = nil
			r, w := t.fresh(), t.watch()
			r.Note = note
			answers := send(t, r)
			r.Note = untilAnswered
			// It was answered before, and runs no longer.
			settled := t.restWhile(r, t.Statuses.mayChange)
			unseen := !settled.Success() && !t.counts()
			t.skipIf(unseen, "the repetition was no success (%s): without -effects nobody sees whether the first was", settled)
			hadOne(t, w.try(1, append(answers, settled)...))
		}
	}
}

func onceAnswerLost(t *T) {
	disturbed("the answer is lost", 1, func(t *T, r ask.Request) []ask.Exchange {
		return []ask.Exchange{t.send(r)}
	})(t)
	// Without an id of the first, another run could not be seen.
	if t.counts() {
		disturbed("the connection breaks in the answer", 1, func(t *T, r ask.Request) []ask.Exchange {
			return t.keep(t.Client.Leave(t.ctx, r, t.Client.Timeout))
		})(t)
	}
}

func inTurn(t *T, r ask.Request) []ask.Exchange { return []ask.Exchange{t.send(r), t.send(r)} }

func atOnce(t *T, r ask.Request) []ask.Exchange { return t.sendAll(r, r) }

func onceRequestCut(t *T) {
	r, w := withBody(t), t.watch()
	cut := t.keep(t.Client.Cut(t.ctx, r))[0]
	cut.Request = cut.Request.With("Content-Length", strconv.Itoa(len(r.Body)))
	cut.Request.Note, cut.Request.Leaves = "the request is cut in its body", time.Second
	cut.Request.Body = r.Body[:len(r.Body)/2]
	whole := t.settle(r)
	t.show(cut, whole)
	t.failIf(!whole.Success(), "a success for the whole request", "%s", whole)
	hadOne(t, w.try(1, cut, whole))
}

func onceKeysDiffer(t *T) {
	r := t.fresh()
	tr := twoOfEqual(t, r, t.otherKey(r))
	t.skipIf(!tr.last().Success(), "the same body under another key was no success: %s", tr.last())
	t.failIf(tr.effects != 2, "two effects", "%s", effects(tr.effects))
}

// bursts are how many requests are sent at one instant, and how often. On a machine too busy for two at once it is more often.
var bursts = []struct{ size, rounds int }{{50, 2}, {10, 4}, {2, 10}}

// concurrent returns the check that requests at one instant have one effect.
func concurrent(instances bool) func(*T) {
	return func(t *T) {
		most := 0
		for _, b := range bursts {
			if b.size > t.Client.Parallel && b.size > 2 {
				continue
			}
			together := 0
			for i := 0; i < b.rounds || together < 2 && i < 3*b.rounds; i++ {
				tr := sendTogether(t, b.size, t.fresh(), instances)
				together = max(together, ask.Overlapped(tr.sent))
			}
			most = max(most, together)
		}
		t.skipIf(most < 2, "no two of several requests were under way at the same time")
		t.say("up to %d had been sent before the first was answered", most)
	}
}

// sendTogether sends a request n times at one instant, to both instances or to one. It fails the check if there is not one
// effect, or not one body.
func sendTogether(t *T, n int, r ask.Request, instances bool) trial {
	requests := slices.Repeat([]ask.Request{r}, n)
	for i := 1; i < n && instances; i += 2 {
		requests[i] = at(r, t.Also)
	}
	w := t.watch()
	answers := t.sendAll(requests...)
	if successes(answers...) == 0 {
		settled := t.settle(r)
		t.skipIf(!settled.Success(), "none of %d requests at once was a success, nor one after them: %s", n, settled)
		w.seen = append(w.seen, settled)
	}
	tr := w.try(1, answers...)
	t.show(tr.sent...)
	t.failIf(tr.effects != 1, "one effect", "%s of %d requests at one instant", effects(tr.effects), n)
	// All are shown: the lines of two alone would seldom overlap again.
	t.failIf(twoBodies(tr.sent) != nil, "one body for all successes", "two different bodies")
	return tr
}

// slowQuery returns the first query of -slow, or nothing.
func (s *Session) slowQuery() string { return strings.Join(s.Slow[:min(1, len(s.Slow))], "") }

// meanwhile returns how long to wait until a slow request runs: enough for it to arrive, and early in its time, since what is
// measured may be a slow moment of the machine. It ends the check if the server is too fast for anything to happen meanwhile.
func meanwhile(t *T, query string) time.Duration {
	if query == "" {
		return 0
	}
	took := t.slow[query]
	if took == 0 {
		began := time.Now()
		e := t.patient(t.fresh().Query(query))
		t.skipIf(!e.Success(), "with -slow %q the request was no success: %s", query, e)
		took = time.Since(began)
		t.slow[query] = took
	}
	t.skipIf(took < 300*time.Millisecond, "with -slow %q the server took only %v", query, took.Round(time.Millisecond))
	return min(took/3, 400*time.Millisecond)
}

// inTime runs ask until it was in time: something happened while a request ran. On a busy machine that may take several
// tries. It ends the check after the sixth.
func inTime(t *T, ask func() bool) {
	for range 6 {
		if ask() {
			return
		}
	}
	t.skipIf(t.Slow == nil, "give -slow: six times no two of several requests at once were under way at the same time")
	t.skip("six times the first request had been answered before anything else could happen")
}

const sentAtOnce = "tried by several at once: -slow makes sure that the first still runs"

// during sends a new operation that takes long, and the others while it runs, until one of them had been sent before the first
// was answered. Without -slow it sends all at one instant, and the first is the one that ran. The watch began before all.
func during(t *T, others func(ask.Request) []ask.Request) (all []ask.Exchange, w *watch) {
	wait := meanwhile(t, t.slowQuery())
	inTime(t, func() bool {
		first := t.fresh().Query(t.slowQuery())
		later := others(first)
		w = t.watch()
		if t.Slow == nil {
			all = t.sendAll(append([]ask.Request{first}, later...)...)
			theRunFirst(all)
			return ask.Overlapped(all) > 1
		}
		t.needParallel(len(later) + 1)
		for i := range later {
			later[i].Note, later[i].AtOnce = "while the first runs", true
		}
		first.Note = "runs"
		one := meanwhileDo(t, first, wait, func() { all = t.Client.Together(t.ctx, later) })
		isInTime := slices.ContainsFunc(all, func(e ask.Exchange) bool {
			return !e.Sent.IsZero() && e.Sent.Before(one.Ended)
		})
		all = append([]ask.Exchange{one}, t.keep(all...)...)
		theRunFirst(all)
		return isInTime
	})
	t.show(all...)
	if t.Slow == nil {
		t.say(sentAtOnce)
	}
	return all, w
}

// meanwhileDo sends a request, and does something else some time after its last byte.
func meanwhileDo(t *T, r ask.Request, wait time.Duration, other func()) ask.Exchange {
	sent, ended := make(chan struct{}), make(chan ask.Exchange, 1)
	r.Runs = true
	go func() { ended <- t.Client.DoNotify(t.ctx, r, func() { close(sent) }) }()
	<-sent
	time.Sleep(wait)
	other()
	return t.keep(<-ended)[0]
}

// theRunFirst puts the exchange in front that was a success and no replay: on a busy machine another than the one that was
// sent first may run.
func theRunFirst(all []ask.Exchange) {
	ran := slices.IndexFunc(all, func(e ask.Exchange) bool { return e.Success() && !isReplay(e.Response) })
	if ran > 0 {
		x, y := &all[0].Request, &all[ran].Request
		x.Note, x.Runs, x.AtOnce, y.Note, y.Runs, y.AtOnce = y.Note, y.Runs, y.AtOnce, x.Note, x.Runs, x.AtOnce
		all[0], all[ran] = all[ran], all[0]
	}
}
