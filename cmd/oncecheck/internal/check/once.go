package check

import (
	"errors"
	"fmt"
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
		Effects, concurrent(false), Draft26),
	// A request to the first instance, its answer, the same to -also: one effect.
	row(Must, "once/instances-repeat", "a repetition on another instance does not run again",
		Effects|Also, onceInstancesRepeat, Draft26),
	// As once/concurrent, alternating between the instances.
	row(Must, "once/instances-concurrent", "requests at the same instant on two instances have one effect",
		Effects|Also, concurrent(true), Draft26),
	// A request whose connection is closed as soon as its last byte is sent (with -slow while the server works); the same
	// until it is answered: one effect.
	row(Must, "once/client-leaves", "a request whose client left before the answer does not run again",
		Counted, departures.judged(hadOne), Draft26, RetryRequests),
	// As once/client-leaves: within -patience an answer that is no in-flight refusal.
	row(Should, "once/client-leaves-answered", "a client that left before the answer gets one when it repeats",
		0, departures.judged(wasAnswered), Draft26, Draft27),
	// A request whose connection is closed at the first byte of its answer; the same until it is answered: one effect.
	row(Must, "once/answer-lost", "a request whose answer was lost or cut does not run again",
		Counted, onceAnswerLost, Draft26, RetryRequests, Incomplete),
	// The head and half of the body, and the connection ends; the whole request until it is answered: a success, and one
	// effect.
	row(Must, "once/request-cut", "a request that was cut in its body runs once when it is repeated whole",
		Counted, onceRequestCut, Incomplete),
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

func onceAnswerLost(t *T) {
	r, w := t.fresh(), t.watch()
	lost := r
	lost.Note = "the connection breaks in the answer"
	e := t.keep(t.Client.Leave(t.ctx, lost, t.Client.Timeout))[0]
	r.Note = untilAnswered
	hadOne(t, w.try(1, e, t.settle(r)))
}

func onceRequestCut(t *T) {
	r, w := t.fresh(), t.watch()
	t.skipIf(len(r.Body) == 0, "the request has no body: give -d")
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
	twoOfEqual(t, r, t.otherKey(r))
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
	// Not all are shown: the usual successes come first, and then other ones.
	rank := func(e ask.Exchange) int {
		if has([]int{t.usual}, e) {
			return -2
		}
		return -successes(e)
	}
	slices.SortStableFunc(tr.sent, func(a, b ask.Exchange) int { return rank(a) - rank(b) })
	t.show(tr.sent...)
	t.failIf(tr.effects != 1, "one effect", "%s of %d requests at one instant", effects(tr.effects), n)
	t.failIf(twoBodies(tr.sent) != nil, "one body for all successes", "two different bodies")
	return tr
}

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
	slow := strings.Join(t.Slow[:min(1, len(t.Slow))], "")
	wait := meanwhile(t, slow)
	inTime(t, func() bool {
		first := t.fresh().Query(slow)
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
