package check

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
	"github.com/onceguard/onceguard/cmd/oncecheck/internal/hook"
)

// lagLimit is how long an effect may take until it is counted.
const lagLimit = 5 * time.Second

// count returns how much has happened so far, or 0 if that is not counted.
func (s *Session) count(ctx context.Context) (int, error) {
	switch {
	case s.Effects.Given():
		ctx, cancel := context.WithTimeout(ctx, s.Client.Timeout())
		defer cancel()
		out, err := s.Effects.Run(ctx)
		if err != nil {
			return 0, err
		}
		return hook.ParseCount(out)
	case s.EffectsURL != nil:
		r := s.request(s.operation()).Bare("GET").Without(s.KeyHeader)
		r.URL, r.Whole = s.EffectsURL, true
		e := s.sendPatiently(ctx, r)
		if !e.Success() {
			return 0, fmt.Errorf("GET %s: %s%s", s.EffectsURL.Redacted(), e, s.excerpt(e))
		}
		return hook.ParseCount(e.Response.Body)
	}
	return 0, nil
}

// awaitCount counts until there are at least want effects, for as long as an effect may take to be counted.
func (s *Session) awaitCount(ctx context.Context, want int) (int, error) {
	deadline := time.Now().Add(lagLimit)
	for {
		n, err := s.count(ctx)
		if err != nil || n >= want || time.Now().After(deadline) {
			return n, err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return n, err
		}
	}
}

// watch counts the effects from a moment on.
type watch struct {
	t      *T
	before int
	seen   []ask.Exchange // whose ids are compared, if effects are not counted
	known  int            // the runs that these tell of and that came before
}

// Watch counts from now on. The runs that answered the known exchanges do not count.
func (t *T) Watch(known ...ask.Exchange) *watch {
	w := &watch{t: t, seen: known, known: t.s.ids.runs(known)}
	var err error
	if w.before, err = t.s.count(t.ctx); err != nil {
		t.NotAsked("the effects cannot be counted: %v", err)
	}
	return w
}

// See adds exchanges whose ids are compared.
func (w *watch) See(exchanges ...ask.Exchange) { w.seen = append(w.seen, exchanges...) }

// Effects returns how many effects there were: what is counted, or how many runs the ids of the successes tell of. It
// waits for as many as want, which may be late.
func (w *watch) Effects(want int) int {
	t := w.t
	if !t.s.CountsEffects() {
		return t.s.ids.runs(w.seen) - w.known
	}
	// One that is too many may be as late as any other.
	if err := pause(t.ctx, min(t.s.lag, lagLimit)); err != nil {
		t.NotAsked("%v", err)
	}
	n, err := t.s.awaitCount(t.ctx, w.before+want)
	switch {
	case err != nil:
		t.NotAsked("the effects cannot be counted: %v", err)
	case n < w.before:
		t.NotAsked("the effects went down from %d to %d: they do not survive this, so they cannot be counted", w.before, n)
	case n < w.before+want:
		there := n - w.before
		w.before += t.stillCounts()
		return there
	}
	return n - w.before
}

// stillCounts ends the check if a new operation is not counted either: the list may be cut to a page. It returns how many
// effects that operation had.
func (t *T) stillCounts() int {
	before, err := t.s.count(t.ctx)
	if err != nil {
		t.NotAsked("the effects cannot be counted: %v", err)
	}
	if e := t.s.sendPatiently(t.ctx, t.s.request(t.s.operation())); !e.Success() {
		return 0
	}
	now, err := t.s.awaitCount(t.ctx, before+1)
	if err != nil || now <= before {
		t.NotAsked("the effects no longer go up (%d): is the list that is counted cut to a page?", now)
	}
	return now - before
}

// Survives ends the check if effects were forgotten, such as by a restart, after there had been n since the watch began.
// It waits until the effects can be counted again.
func (w *watch) Survives(n int) {
	t := w.t
	if !t.s.CountsEffects() {
		return
	}
	deadline := time.Now().Add(t.s.Patience)
	for {
		now, err := t.s.count(t.ctx)
		switch {
		case err == nil && now < w.before+n:
			t.NotAsked("the effects went down from %d to %d: they do not survive this, so they cannot be counted", w.before+n, now)
		case err == nil:
			return
		case time.Now().After(deadline):
			t.NotAsked("the effects cannot be counted any more: %v", err)
		}
		if err := pause(t.ctx, 100*time.Millisecond); err != nil {
			t.NotAsked("%v", err)
		}
	}
}

// Once fails the check unless there was exactly one effect.
func (w *watch) Once() {
	if n := w.Effects(1); n != 1 {
		w.t.Failf("one effect", "%s", effects(n))
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

// pause waits, or returns why ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
