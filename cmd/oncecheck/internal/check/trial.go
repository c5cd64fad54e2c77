package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// trial is what was sent, and how many effects it had.
type trial struct {
	sent    []ask.Exchange
	effects int
}

func (tr trial) first() ask.Exchange { return tr.sent[0] }
func (tr trial) last() ask.Exchange  { return tr.sent[len(tr.sent)-1] }

// told is a part that several checks look at, or why it could not be asked.
type told[P any] struct {
	part   P
	reason string
}

// tell returns a part, which is asked when the first check wants it. If it could not be asked, no later check tries again.
func tell[P any](t *T, name string, ask func(*T) P) told[P] {
	if t.parts[name] == nil {
		var part P
		r := t.part(t.ctx, func(t *T) { part = ask(t) })
		if r.Verdict == Held {
			r.Sentence = ""
		}
		t.parts[name] = told[P]{part, r.Sentence}
	}
	return t.parts[name].(told[P])
}

// wantTold returns a part, and ends the check if it could not be asked.
func wantTold[P any](t *T, name string, ask func(*T) P) P {
	k := tell(t, name, ask)
	t.skipIf(k.reason != "", "%s", k.reason)
	return k.part
}

// shared returns a trial that several checks look at, and shows it.
func shared(t *T, name string, ask func(*T) trial) trial {
	tr := wantTold(t, name, ask)
	t.show(tr.sent...)
	return tr
}

// judged returns the check that judges a trial.
func judged(ask func(*T) trial, judge func(*T, trial)) func(*T) {
	return func(t *T) { judge(t, ask(t)) }
}

// A plot is a trial with each of several queries.
type plot struct {
	name    string
	queries func(*Session) []string
	ask     func(t *T, query string) trial
}

// each visits the trials, and says which queries could not be asked.
func (p plot) each(t *T, visit func(query string, tr trial)) (unasked []string) {
	for _, query := range p.queries(t.Session) {
		k := tell(t, p.name+" "+query, func(t *T) trial { return p.ask(t, query) })
		if k.reason != "" {
			unasked = append(unasked, k.reason)
			continue
		}
		t.show(k.part.sent...)
		visit(query, k.part)
	}
	return unasked
}

// judged returns the check that judges each trial. Then it ends if a query could not be asked: it says which, and hides no
// failure of another.
func (p plot) judged(judge func(*T, trial)) func(*T) {
	return func(t *T) {
		unasked := p.each(t, func(_ string, tr trial) { judge(t, tr) })
		t.skipIf(unasked != nil, "%s", strings.Join(unasked, "; "))
	}
}

// hadOne fails the check unless there was exactly one effect.
func hadOne(t *T, tr trial) { t.failIf(tr.effects != 1, "one effect", "%s", effects(tr.effects)) }

func hadAtMostOne(t *T, tr trial) {
	t.failIf(tr.effects > 1, "at most one effect", "%s", effects(tr.effects))
}

func noWrongSuccess(t *T, tr trial) {
	wrong := successes(tr.sent...) > 0 && tr.effects == 0
	t.failIf(wrong, "no success, or an effect", "a success, and %s", effects(tr.effects))
}

func wasAnswered(t *T, tr trial) {
	t.failIf(tr.last().Response == nil, "an answer", "%s after %v", tr.last(), t.Patience)
	isUnlocked(t, tr)
}

func isUnlocked(t *T, tr trial) {
	t.failIf(t.Statuses.isInFlight(tr.last()), "an answer", "%s after %v", tr.last(), t.Patience)
}

// lagLimit is how long an effect may take until it is counted.
const lagLimit = 5 * time.Second

// tally returns how much has happened so far, or 0 if that is not counted.
func (t *T) tally() (int, error) {
	if !t.counts() {
		return 0, nil
	}
	output, err := t.printed()
	if err != nil {
		return 0, err
	}
	n, err := parseCount(output)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, t.shown(string(output), 60))
	}
	return n, err
}

// printed returns what the command prints, or the URL answers, that counts effects.
func (t *T) printed() ([]byte, error) {
	if t.Effects != "" {
		return t.Effects.Run(t.ctx, t.Client.Timeout)
	}
	r := t.fresh().Bare("GET").Without(t.KeyHeader)
	r.URL = t.EffectsURL
	e := t.repeat(r, t.Patience, isBusy)
	if !e.Success() {
		return nil, fmt.Errorf("GET %s: %s%s. %s", r.URL.Redacted(), e, t.excerpt(e), advice(e))
	}
	return e.Response.Body, nil
}

// watch counts the effects from a moment on.
type watch struct {
	t      *T
	before int
	// The exchanges whose ids are compared, if effects are not counted.
	seen []ask.Exchange
	// The runs that these tell of and that came before.
	known int
}

// watch counts from now on. The runs that answered the known exchanges do not count.
func (t *T) watch(known ...ask.Exchange) *watch {
	w := &watch{t: t, seen: known, known: t.ids.runs(known)}
	w.before = w.count(0)
	return w
}

// count counts until there are as many as want, for as long as an effect may take to be counted. It ends the check if that
// cannot be.
func (w *watch) count(want int) (n int) {
	w.t.until(lagLimit, func() bool {
		var err error
		n, err = w.t.tally()
		w.t.skipIf(err != nil, "the effects cannot be counted: %v. Check -effects: it is a command for sh, "+
			"or a URL with http:// or https://, which is asked with the headers of -H", err)
		return n >= want
	})
	return n
}

// try returns the trial of exchanges that came since the watch began. Its effects are those that have been counted since
// then, or how many runs the ids of the successes tell of. It waits for as many as want, which may be late.
func (w *watch) try(want int, exchanges ...ask.Exchange) trial {
	w.seen = append(w.seen, exchanges...)
	if !w.t.counts() {
		return trial{exchanges, w.t.ids.runs(w.seen) - w.known}
	}
	// One that is too many may be as late as any other.
	w.t.pause(min(w.t.lag, lagLimit))
	now := w.count(w.before + want)
	w.wentDown(w.before, now)
	there := now - w.before
	if there < want {
		w.before += w.stillCounts()
	}
	return trial{exchanges, there}
}

// wentDown ends the check if effects were forgotten.
func (w *watch) wentDown(from, to int) {
	w.t.skipIf(to < from, "the effects went down from %d to %d: they do not survive this", from, to)
}

// stillCounts ends the check if a new operation is not counted either: the list may be cut to a page. It returns how many
// effects that operation had.
func (w *watch) stillCounts() int {
	before := w.count(0)
	if e := w.t.repeat(w.t.fresh(), w.t.Patience, isBusy); !e.Success() {
		return 0
	}
	now := w.count(before + 1)
	w.t.skipIf(now <= before, "the effects no longer go up (%d): is the list that is counted cut to a page?", now)
	return now - before
}

// survives ends the check if effects were forgotten, such as by a restart, after there had been n since the watch began.
// It waits until the effects can be counted again.
func (w *watch) survives(n int) {
	var now int
	var err error
	w.t.until(w.t.Patience, func() bool {
		now, err = w.t.tally()
		return err == nil
	})
	w.t.skipIf(err != nil, "the effects cannot be counted any more: %v", err)
	if w.t.counts() {
		w.wentDown(w.before+n, now)
	}
}

func effects(n int) string {
	switch n {
	case 0:
		return "no effect"
	case 1:
		return "one effect"
	}
	return fmt.Sprintf("%d effects", n)
}
