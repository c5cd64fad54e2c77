package check

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// outageChecks has the checks of the server whose store is down, and of the server's death.
var outageChecks = []Check{
	// -store-down; a new operation three times under one key; -store-up; the same until it is answered: at most one effect.
	row(Must, "store/down-once", "without its store the server does not run a request twice",
		Store|Effects, storeDownOnce, Draft26),
	// An operation; -store-down; the same: a refusal, or a success with the first's body; one effect.
	row(Must, "store/down-completed", "what was completed before does not run again",
		Store|Effects, storeDownCompleted, Draft26),
	// Each request of store/down-once and store/down-completed gets an answer within -timeout; a new operation's is a
	// success, a 429 or a 5xx.
	row(Should, "store/down-answered", "without its store the server answers in time",
		Store, storeDownAnswered),
	// -store-up; new operations, each under its own key, until one is a success, for up to -patience.
	row(Must, "store/recovers", "when the store is back, requests run again",
		Store, storeRecovers),
	// The operation of store/down-completed after -store-up: a success with the first's body, one effect.
	row(Should, "store/remembers", "what was completed before the outage is replayed after it",
		Store|Effects, storeRemembers, Draft26),

	// -slow, and -restart while it runs; the same until it is answered, for up to -patience: at most one effect. A MUST with
	// -at-most-once; without it, a server whose lease runs out may run again.
	row(Advice, "crash/at-most-once", "killed while it works, a request has at most one effect in the end",
		Restart|Slow|Counted, crashes.judged(hadAtMostOne), Draft26),
	// As crash/at-most-once: if a repetition is a success, there is an effect.
	row(Must, "crash/no-wrong-success", "killed while it works, a request is not called a success that it was not",
		Restart|Slow|Counted, crashes.judged(noWrongSuccess), Draft26),
	// As crash/at-most-once: within -patience an answer that is no in-flight refusal.
	row(Should, "crash/answered", "killed while it works, a request gets an answer in the end",
		Restart|Slow, crashes.judged(wasAnswered), Draft27),
	// An operation and its answer; -restart; the same: a success with the first's body, one effect.
	row(Must, "crash/after-answer", "killed after its answer, the server remembers the request",
		Restart|Effects, crashAfterAnswer, Draft26),
}

// otherChecks has the check of many keys at once.
var otherChecks = []Check{
	// 1,000 requests shuffled over the instances, -parallel at a time; at the end each key once more if none of its five was
	// a success: 200 effects, and the successes of a key have one body. Refusals are allowed in between.
	row(Must, "load/shuffled", "200 keys, five times each in any order, have one effect and one body each",
		Effects, loadShuffled, Draft26),
}

// The commands as the lines of a report have them: what the user has given may contain a password.
const (
	restarts  = `sh -c "$RESTART"`
	stopStore = `sh -c "$STORE_DOWN"`
	runStore  = `sh -c "$STORE_UP"`
)

// run runs a command, and ends the check if it fails. It has a minute even where the patience for an answer is shorter.
func (t *T) run(c Command) {
	_, err := c.Run(t.ctx, max(t.Patience, time.Minute))
	t.skipIf(err != nil, "%v", err)
}

// outage is what happened during an outage of the store, and after it.
type outage struct {
	// An operation that was completed before, and the same while the store is down.
	completed trial
	// A new operation, three times while the store is down, and once when it is back.
	fresh trial
	// The last of new operations when the store is back.
	recovered trial
	// The completed operation, when the store is back: the effects are those from then on.
	after trial
}

func askOutage(t *T) outage { return wantTold(t, "outage", goThroughOutage) }

// goThroughOutage stops the store, asks, and starts it again whatever happens.
func goThroughOutage(t *T) (o outage) {
	completed, fresh, w := t.fresh(), t.fresh(), t.watch()
	first := t.first(completed)
	t.run(t.StoreDown)
	isUp := false
	defer func() {
		if !isUp {
			_, _ = t.StoreUp.Run(context.WithoutCancel(t.ctx), time.Minute)
		}
	}()
	completed.Note, fresh.Note = "the store is down", "the store is down"
	completed.Before, completed.After = stopStore, runStore
	o.completed = w.try(1, first, t.send(completed))

	w = t.watch()
	tries := []ask.Exchange{t.send(fresh), t.send(fresh), t.send(fresh)}
	t.run(t.StoreUp)
	isUp = true
	tries[0].Request.Before, tries[2].Request.After = stopStore, runStore
	completed.Note, fresh.Note = "the store is back", "the store is back"
	tries = append(tries, t.settle(fresh))
	o.fresh = w.try(min(1, successes(tries...)), tries...)

	var e ask.Exchange
	t.until(t.Patience, func() bool {
		e = t.send(t.fresh())
		return e.Success()
	})
	completed.Before, completed.After = stopStore+"\n"+runStore, ""
	e.Request.Before = completed.Before
	o.recovered.sent = []ask.Exchange{e}
	w = t.watch(first)
	e = t.settle(completed)
	o.after = trial{[]ask.Exchange{first, e}, w.try(0, e).effects}
	return o
}

func storeDownOnce(t *T) {
	fresh := askOutage(t).fresh
	t.show(fresh.sent...)
	hadAtMostOne(t, fresh)
}

func storeDownCompleted(t *T) {
	tr := askOutage(t).completed
	t.show(tr.sent...)
	t.failIf(tr.effects > 1, "one effect", "%s", effects(tr.effects))
	isOther := tr.last().Success() && !sameBody(tr.first(), tr.last())
	t.failIf(isOther, "a refusal, or the first's response", "another success")
}

func storeDownAnswered(t *T) {
	o := askOutage(t)
	t.show(o.completed.sent...)
	t.failIf(o.completed.last().Response == nil, "an answer", "%s", o.completed.last())
	t.show(o.fresh.sent...)
	for _, e := range o.fresh.sent[:3] {
		t.failIf(e.Response == nil, "an answer", "%s", e)
	}
	e := o.fresh.first()
	t.failIf(isRefusal(e) && !isBusy(e), "a success or a 5xx", "%s", e)
}

func storeRecovers(t *T) {
	tr := askOutage(t).recovered
	t.show(tr.sent...)
	t.failIf(!tr.last().Success(), "a success", "%s after %v", tr.last(), t.Patience)
}

func storeRemembers(t *T) {
	tr := askOutage(t).after
	t.show(tr.sent...)
	t.failIf(tr.effects > 0, "no effect of the repetition", "%s", effects(tr.effects))
	t.same(tr.first(), tr.last())
}

// crashes are operations during which the server was killed, with each query of -slow, and their repetitions.
var crashes = plot{"crash", func(s *Session) []string { return s.Slow }, crash}

// crash kills the server while it works, and repeats the request until it is answered.
func crash(t *T, query string) trial {
	wait := meanwhile(t, query)
	var r ask.Request
	var w *watch
	var killed ask.Exchange
	inTime(t, func() bool {
		t.first(t.fresh()) // an effect that must survive
		r, w = t.fresh().Query(query), t.watch()
		r.Note = "the server is killed meanwhile"
		killed = meanwhileDo(t, r, wait, func() { t.run(t.Restart) })
		w.survives(0)
		return killed.Response == nil
	})
	r.Note, r.Before = untilAnswered, restarts
	settled := settleRestarted(t, r)
	return w.try(min(1, successes(settled)), killed, settled)
}

// settleRestarted repeats a request until it is answered, and ends the check if -restart has not brought the server back.
func settleRestarted(t *T, r ask.Request) ask.Exchange {
	e := t.settle(r)
	t.skipIf(e.NobodyListens(), "the server does not listen %v after -restart: %s", t.Patience, e)
	return e
}

func crashAfterAnswer(t *T) {
	r, w := t.fresh(), t.watch()
	first := t.first(r)
	t.run(t.Restart)
	w.survives(1)
	r.Note, r.Before = "after a kill and a restart", restarts
	again := settleRestarted(t, r)
	hadOne(t, w.try(1, first, again))
	t.same(first, again)
}

const loadKeys, loadRepetitions = 200, 5

// loadShuffled sends 200 operations five times each, in any order and over all instances.
func loadShuffled(t *T) {
	const needed, sent = loadKeys * (loadRepetitions + 1), loadKeys * loadRepetitions
	left := t.Client.Left()
	t.skipIf(left < needed, "it needs up to %d requests, and %d are left of the budget", needed, left)
	requests := make([]ask.Request, loadKeys)
	for i := range requests {
		requests[i] = t.fresh()
	}
	w := t.watch()
	byKey, refused := make([][]ask.Exchange, loadKeys), 0
	for chunk := range slices.Chunk(rand.Perm(sent), t.Client.Parallel) {
		together := make([]ask.Request, len(chunk))
		for i, n := range chunk {
			together[i] = requests[n%loadKeys]
			if t.Also != nil && i%2 == 1 {
				together[i] = at(together[i], t.Also)
			}
		}
		for i, e := range t.Client.Together(t.ctx, together) {
			byKey[chunk[i]%loadKeys] = append(byKey[chunk[i]%loadKeys], e)
			refused += 1 - successes(e)
		}
	}
	one := byKey[0][0]
	t.skipIf(refused == sent && one.NobodyListens(), "the server does not listen: %s", one)
	for i, r := range requests {
		if successes(byKey[i]...) == 0 {
			byKey[i] = append(byKey[i], t.settle(r))
		}
		t.show(byKey[i]...)
		t.failIf(successes(byKey[i]...) == 0, "a success for every key in the end", "%s", trial{sent: byKey[i]}.last())
		w.seen = append(w.seen, byKey[i]...)
		two := twoBodies(byKey[i])
		t.show(two...)
		t.failIf(two != nil, "one body for each key", "two bodies")
	}
	t.show(byKey[0]...)
	n := w.try(loadKeys).effects
	t.failIf(n != loadKeys, "200 effects", "%s", effects(n))
	t.say("%d keys, %d requests, %d of them refused on the way", loadKeys, sent, refused)
}
