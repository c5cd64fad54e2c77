package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/hook"
)

// outage is what happened before, during and after an outage of the store.
type outage struct {
	before        ask.Exchange   // an operation that was completed before
	beforeDown    ask.Exchange   // the same while the store is down
	beforeEffects int            // of the completed operation, while the store is down
	down          []ask.Exchange // a new operation, three times while the store is down
	recovered     ask.Exchange   // the last of new operations when the store is back
	downAfter     ask.Exchange   // the operation of down, when the store is back
	downEffects   int
	after         ask.Exchange // the operation of before, when the store is back
	afterEffects  int          // from when the store was back
}

func askOutage(t *T) *outage { return memo(t, "outage", func() *outage { return goThroughOutage(t) }) }

// goThroughOutage stops the store, asks, and starts it again whatever happens.
func goThroughOutage(t *T) *outage {
	completed, fresh := t.s.fresh(), t.s.fresh()
	o, w := new(outage), t.Watch()
	o.before = t.First(completed)
	command(t, t.s.StoreDown)
	up := false
	defer func() {
		if !up {
			_, _ = t.s.StoreUp.Run(context.WithoutCancel(t.ctx))
		}
	}()
	completed.Note, fresh.Note = "the store is down", "the store is down"
	o.beforeDown = t.Send(completed)
	o.beforeEffects = w.try(1, o.before, o.beforeDown).effects

	w = t.Watch()
	for range 3 {
		o.down = append(o.down, t.Send(fresh))
	}
	command(t, t.s.StoreUp)
	up = true
	completed.Note, fresh.Note = "the store is back", "the store is back"
	o.downAfter = t.Settle(fresh)
	tries := append(o.down, o.downAfter)
	o.downEffects = w.try(min(1, successes(tries...)), tries...).effects

	deadline := time.Now().Add(t.s.Patience)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		o.recovered = t.Send(t.s.fresh())
		if o.recovered.Success() || time.Now().Add(wait).After(deadline) {
			break
		}
		t.Pause(wait)
	}
	w = t.Watch(o.before)
	o.after = t.Settle(completed)
	o.afterEffects = w.try(0, o.after).effects
	return o
}

// command runs a hook, and ends the check if it fails. A hook has a minute even where the patience for an answer is shorter.
func command(t *T, c hook.Command) {
	limit := max(t.s.Patience, time.Minute)
	ctx, cancel := context.WithTimeoutCause(t.ctx, limit, fmt.Errorf("it took more than %v", limit))
	defer cancel()
	if _, err := c.Run(ctx); err != nil {
		t.NotAsked("%v", err)
	}
}

// The commands as the lines of a report have them: what the user has given may contain a password.
const (
	restarts  = `sh -c "$RESTART"`
	stopStore = `sh -c "$STORE_DOWN"`
	runStore  = `sh -c "$STORE_UP"`
)

// whileDown returns the exchanges with the commands between which they were sent.
func whileDown(exchanges ...ask.Exchange) []ask.Exchange {
	shown := slices.Clone(exchanges)
	shown[0].Request.Before = stopStore
	shown[len(shown)-1].Request.After = runStore
	return shown
}

// afterOutage returns the exchange with the commands after which it was sent.
func afterOutage(e ask.Exchange) ask.Exchange {
	e.Request.Before = stopStore + "\n" + runStore
	return e
}

func storeDownOnce(t *T) {
	o := askOutage(t)
	t.Show(append(whileDown(o.down...), o.downAfter)...)
	t.AtMostOnce(o.downEffects)
}

func storeDownCompleted(t *T) {
	o := askOutage(t)
	t.Show(append([]ask.Exchange{o.before}, whileDown(o.beforeDown)...)...)
	switch {
	case o.beforeEffects > 1:
		t.Failf("one effect", "%s", effects(o.beforeEffects))
	case o.beforeDown.Success() && !sameBody(o.before, o.beforeDown):
		t.Failf("a refusal, or the first's response", "another success")
	}
}

func storeDownAnswered(t *T) {
	o := askOutage(t)
	down := append([]ask.Exchange{o.beforeDown}, o.down...)
	t.Show(whileDown(down...)...)
	for _, e := range down {
		t.failIf(e.Response == nil, "an answer", "%s", e)
	}
	if first := o.down[0]; isRefusal(first) && first.Response.Status != 429 {
		t.Failf("a success or a 5xx", "%s", first)
	}
}

func storeRecovers(t *T) {
	o := askOutage(t)
	t.Show(afterOutage(o.recovered))
	t.failIf(!o.recovered.Success(), "a success", "%s after %v", o.recovered, t.s.Patience)
}

func storeRemembers(t *T) {
	o := askOutage(t)
	t.Show(o.before, afterOutage(o.after))
	t.failIf(o.afterEffects > 0, "no effect of the repetition", "%s", effects(o.afterEffects))
	t.Same(o.before, o.after)
}

// crashes has operations during which the server was killed, with each query of -slow, and their repetitions.
func crashes(t *T, judge func(trial)) { eachQuery(t, "crash ", t.s.Slow, crash, judge) }

// crash kills the server while it works, and repeats the request until it is answered.
func crash(t *T, query string) trial {
	wait := meanwhile(t, query)
	var r ask.Request
	var w *watch
	var killed ask.Exchange
	inTime(t, func() bool {
		t.First(t.s.fresh()) // an effect that must survive
		r, w = t.s.fresh().Query(query), t.Watch()
		running := r
		running.Note = "the server is killed meanwhile"
		killed = meanwhileDo(t, running, wait, func() { command(t, t.s.Restart) })
		w.Survives(0)
		return killed.Response == nil
	})
	r.Note, r.Before = "until it is answered", restarts
	settled := settleRestarted(t, r)
	return w.try(min(1, successes(settled)), killed, settled)
}

// settleRestarted repeats a request until it is answered, and ends the check if -restart has not brought the server back.
func settleRestarted(t *T, r ask.Request) ask.Exchange {
	e := t.Settle(r)
	t.skipIf(e.NobodyListens(), "the server does not listen %v after -restart: %s", t.s.Patience, e)
	return e
}

func crashAfterAnswer(t *T) {
	r := t.s.fresh()
	w := t.Watch()
	first := t.First(r)
	command(t, t.s.Restart)
	w.Survives(1)
	r.Note, r.Before = "after a kill and a restart", restarts
	again := settleRestarted(t, r)
	w.See(first, again)
	w.Once()
	t.Same(first, again)
}
