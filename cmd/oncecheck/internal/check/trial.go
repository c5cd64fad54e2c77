package check

import (
	"errors"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// trial is an operation that was sent, and how many effects it had.
type trial struct {
	sent    []ask.Exchange
	effects int
}

func (tr trial) first() ask.Exchange { return tr.sent[0] }
func (tr trial) last() ask.Exchange  { return tr.sent[len(tr.sent)-1] }

// try returns the trial of the exchanges, whose effects have been watched. It waits for as many effects as want.
func (w *watch) try(want int, exchanges ...ask.Exchange) trial {
	w.See(exchanges...)
	return trial{exchanges, w.Effects(want)}
}

// shared returns a trial that several checks look at, see memo, and shows it.
func shared(t *T, name string, ask func() trial) trial {
	tr := memo(t, name, ask)
	t.Show(tr.sent...)
	return tr
}

// memo returns a part that several checks look at. It is asked when the first of them runs. If it could not be asked, no later
// check tries again.
func memo[P any](t *T, name string, ask func() P) P {
	switch known := t.s.parts[name].(type) {
	case P:
		return known
	case error:
		t.NotAsked("%v", known)
	}
	defer func() {
		if t.s.parts[name] == nil { // ask has ended the check
			t.s.parts[name] = errors.New(t.result.Sentence)
		}
	}()
	part := ask()
	t.s.parts[name] = part
	return part
}

// eachQuery judges the trial of each query, which is memo's. Then it ends the check if a query could not be asked: it says which,
// and hides no failure of another.
func eachQuery(t *T, name string, queries []string, ask func(*T, string) trial, judge func(trial)) {
	var unasked []string
	for _, query := range queries {
		asked := false
		var tr trial
		t.do(func(t *T) {
			tr = memo(t, name+query, func() trial { return ask(t, query) })
			asked = true
		})
		if asked {
			judge(tr)
		} else {
			unasked = append(unasked, t.result.Sentence)
		}
	}
	t.skipIf(len(unasked) > 0, "%s", strings.Join(unasked, "; "))
}

// each returns the check that judges each of several trials.
func each(trials func(t *T, judge func(trial)), judge func(*T, trial)) func(*T) {
	return func(t *T) {
		trials(t, func(tr trial) {
			t.Show(tr.sent...)
			judge(t, tr)
		})
	}
}

func hadOne(t *T, tr trial) { t.Once(tr.effects) }

func hadAtMostOne(t *T, tr trial) {
	t.AtMostOnce(tr.effects)
	t.Say("%s, and the repetition was answered %s", effects(tr.effects), tr.last())
}

func noWrongSuccess(t *T, tr trial) {
	t.failIf(successes(tr.sent...) > 0 && tr.effects == 0, "no success, or an effect", "a success, and %s", effects(tr.effects))
}

func wasAnswered(t *T, tr trial) {
	t.failIf(tr.last().Response == nil, "an answer", "%s after %v", tr.last(), t.s.Patience)
	isUnlocked(t, tr)
}

func isUnlocked(t *T, tr trial) {
	t.failIf(t.s.Statuses.isInFlight(tr.last()), "an answer", "%s after %v", tr.last(), t.s.Patience)
}
