package check

import (
	"slices"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// slowQuery returns the first query of -slow, or nothing.
func slowQuery(t *T) string { return strings.Join(t.s.Slow[:min(1, len(t.s.Slow))], "") }

// meanwhile returns how long to wait until a slow request runs: enough for it to arrive, and early in its time, since what is
// measured may be a slow moment of the machine. It ends the check if the server is too fast for anything to happen meanwhile.
func meanwhile(t *T, query string) time.Duration {
	if query == "" {
		return 0
	}
	took := t.s.slow[query]
	if took == 0 {
		began := time.Now()
		if e := t.SendPatiently(t.s.fresh().Query(query)); !e.Success() {
			t.NotAsked("with -slow %q the request was no success: %s", query, e)
		}
		took = time.Since(began)
		t.s.slow[query] = took
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
	t.skipIf(t.s.Slow == nil, "give -slow: six times no two of several requests at once were under way at the same time")
	t.NotAsked("six times the first request had been answered before anything else could happen")
}

const sentAtOnce = "tried by several at once: -slow makes sure that the first still runs"

// during sends a new operation that takes long, and the others while it runs, until one of them had been sent before the first
// was answered. Without -slow it sends all at one instant, and the first is the one that ran. The watch began before all.
func during(t *T, others func(ask.Operation, ask.Request) []ask.Request) (all []ask.Exchange, w *watch) {
	wait := meanwhile(t, slowQuery(t))
	inTime(t, func() bool {
		op := t.s.operation()
		first := t.s.request(op).Query(slowQuery(t))
		later := others(op, first)
		w = t.Watch()
		if t.s.Slow == nil {
			all = theRunFirst(t.SendAll(append([]ask.Request{first}, later...)))
			return ask.Overlapped(all) > 1
		}
		t.needParallel(len(later) + 1)
		for i := range later {
			later[i].Note, later[i].AtOnce = "while the first runs", true
		}
		first.Note = "runs"
		one := meanwhileDo(t, first, wait, func() { all = t.s.Client.Together(t.ctx, later) })
		inTime := slices.ContainsFunc(all, func(e ask.Exchange) bool { return !e.Sent.IsZero() && e.Sent.Before(one.Ended) })
		all = theRunFirst(append([]ask.Exchange{one}, t.keep(all...)...))
		return inTime
	})
	t.Show(all...)
	if t.s.Slow == nil {
		t.Say(sentAtOnce)
	}
	return all, w
}

// meanwhileDo sends a request, and does something else some time after its last byte.
func meanwhileDo(t *T, r ask.Request, wait time.Duration, other func()) ask.Exchange {
	sent, ended := make(chan struct{}), make(chan ask.Exchange, 1)
	r.Runs = true
	go func() { ended <- t.s.Client.DoNotify(t.ctx, r, func() { close(sent) }) }()
	<-sent
	err := pause(t.ctx, wait)
	other()
	e := <-ended
	t.skipIf(err != nil, "%v", err)
	return t.keep(e)[0]
}

// theRunFirst puts the exchange in front that was a success and no replay: on a busy machine another than the one that was
// sent first may run.
func theRunFirst(all []ask.Exchange) []ask.Exchange {
	ran := slices.IndexFunc(all, func(e ask.Exchange) bool { return e.Success() && !isReplay(e.Response) })
	if ran > 0 {
		x, y := &all[0].Request, &all[ran].Request
		x.Note, x.Runs, x.AtOnce, y.Note, y.Runs, y.AtOnce = y.Note, y.Runs, y.AtOnce, x.Note, x.Runs, x.AtOnce
		all[0], all[ran] = all[ran], all[0]
	}
	return all
}
