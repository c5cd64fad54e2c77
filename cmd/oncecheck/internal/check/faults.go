package check

import (
	"context"
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

func (t *T) outage() *outage { return memo(t, "outage", t.goThroughOutage) }

// goThroughOutage stops the store, asks, and starts it again whatever happens.
func (t *T) goThroughOutage() *outage {
	completed, fresh := t.s.request(t.s.operation()), t.s.request(t.s.operation())
	o, w := new(outage), t.Watch()
	o.before = t.First(completed)
	t.command(t.s.StoreDown)
	up := false
	defer func() {
		if !up {
			_, _ = t.s.StoreUp.Run(context.WithoutCancel(t.ctx))
		}
	}()
	completed.Note, fresh.Note = "the store is down", "the store is down"
	o.beforeDown = t.Send(completed)
	w.See(o.before, o.beforeDown)
	o.beforeEffects = w.Effects(1)

	w = t.Watch()
	for range 3 {
		o.down = append(o.down, t.Send(fresh))
	}
	t.command(t.s.StoreUp)
	up = true
	completed.Note, fresh.Note = "the store is back", "the store is back"
	o.downAfter = t.Settle(fresh)
	w.See(o.down...)
	w.See(o.downAfter)
	o.downEffects = w.Effects(min(1, successes(append(o.down, o.downAfter)...)))

	o.recovered = t.recover()
	w = t.Watch(o.before)
	o.after = t.Settle(completed)
	w.See(o.after)
	o.afterEffects = w.Effects(0)
	return o
}

// recover sends new operations until one is a success.
func (t *T) recover() ask.Exchange {
	deadline := time.Now().Add(t.s.Patience)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		e := t.Send(t.s.request(t.s.operation()))
		if e.Success() || time.Now().Add(wait).After(deadline) || pause(t.ctx, wait) != nil {
			return e
		}
	}
}

// command runs a hook, and ends the check if it fails.
func (t *T) command(c hook.Command) {
	ctx, cancel := context.WithTimeout(t.ctx, t.s.Patience)
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
	o := t.outage()
	t.Show(append(whileDown(o.down...), o.downAfter)...)
	if o.downEffects > 1 {
		t.Failf("at most one effect", "%s", effects(o.downEffects))
	}
}

func storeDownCompleted(t *T) {
	o := t.outage()
	t.Show(append([]ask.Exchange{o.before}, whileDown(o.beforeDown)...)...)
	switch {
	case o.beforeEffects > 1:
		t.Failf("one effect", "%s", effects(o.beforeEffects))
	case o.beforeDown.Success() && !sameBody(o.before, o.beforeDown):
		t.Failf("a refusal, or the first's response", "another success")
	}
}

func storeDownAnswered(t *T) {
	o := t.outage()
	down := append([]ask.Exchange{o.beforeDown}, o.down...)
	t.Show(whileDown(down...)...)
	for _, e := range down {
		if e.Response == nil {
			t.Failf("an answer", "%s", e)
		}
	}
	if first := o.down[0]; isRefusal(first) && first.Response.Status != 429 {
		t.Failf("a success or a 5xx", "%s", first)
	}
}

func storeRecovers(t *T) {
	o := t.outage()
	t.Show(afterOutage(o.recovered))
	if !o.recovered.Success() {
		t.Failf("a success", "%s after %v", o.recovered, t.s.Patience)
	}
}

func storeRemembers(t *T) {
	o := t.outage()
	t.Show(o.before, afterOutage(o.after))
	if o.afterEffects > 0 {
		t.Failf("no effect of the repetition", "%s", effects(o.afterEffects))
	}
	if !sameBody(o.before, o.after) {
		t.Failf("the first's response", "%s", o.after)
	}
}

// crash is an operation during which the server was killed.
type crash struct {
	first, settled ask.Exchange
	effects        int
}

// eachCrash calls judge for the crash during the request with each query of -slow.
func (t *T) eachCrash(judge func(c *crash)) {
	for _, query := range t.s.Slow {
		c := memo(t, "crash "+query, func() *crash { return t.goThroughCrash(query) })
		t.Show(c.first, c.settled)
		judge(c)
	}
}

// goThroughCrash kills the server while it works, and repeats the request until it is answered.
func (t *T) goThroughCrash(query string) *crash {
	wait := t.meanwhile(query)
	var r ask.Request
	var w *watch
	c := new(crash)
	t.inTime(func() bool {
		t.First(t.s.request(t.s.operation())) // an effect that must survive
		r, w = t.s.request(t.s.operation()).Query(query), t.Watch()
		c.first = t.killDuring(r, wait)
		w.Survives(0)
		return c.first.Response == nil
	})
	r.Note, r.Before = "until it is answered", restarts
	c.settled = t.Settle(r)
	c.effects = w.Effects(min(1, successes(c.settled)))
	return c
}

// killDuring sends a request, and kills and restarts the server some time after its last byte.
func (t *T) killDuring(r ask.Request, wait time.Duration) ask.Exchange {
	sent, ended := make(chan struct{}), make(chan ask.Exchange, 1)
	r.Note, r.Runs = "the server is killed meanwhile", true
	go func() { ended <- t.s.Client.DoNotify(t.ctx, r, func() { close(sent) }) }()
	<-sent
	err := pause(t.ctx, wait)
	t.command(t.s.Restart)
	killed := <-ended
	if err != nil {
		t.NotAsked("%v", err)
	}
	return t.keep(killed)[0]
}

func crashAtMostOnce(t *T) {
	t.eachCrash(func(c *crash) {
		if c.effects > 1 {
			t.Failf("at most one effect", "%s", effects(c.effects))
		}
		t.Say("%s, and the repetition was answered %s", effects(c.effects), c.settled)
	})
}

func crashNoWrongSuccess(t *T) {
	t.eachCrash(func(c *crash) {
		if c.settled.Success() && c.effects == 0 {
			t.Failf("no success, or an effect", "%s, and %s", c.settled, effects(c.effects))
		}
	})
}

func crashAnswered(t *T) {
	t.eachCrash(func(c *crash) {
		if c.settled.Response == nil || t.isInFlight(c.settled) {
			t.Failf("an answer", "%s after %v", c.settled, t.s.Patience)
		}
	})
}

func crashAfterAnswer(t *T) {
	r := t.s.request(t.s.operation())
	w := t.Watch()
	first := t.First(r)
	t.command(t.s.Restart)
	w.Survives(1)
	r.Note, r.Before = "after a kill and a restart", restarts
	again := t.Settle(r)
	w.See(first, again)
	w.Once()
	if !sameBody(first, again) {
		t.Failf("the first's response", "%s", again)
	}
}
