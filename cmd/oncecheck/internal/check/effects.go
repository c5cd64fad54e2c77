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
		limit := s.Client.Timeout()
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %v", limit))
		defer cancel()
		out, err := s.Effects.Run(ctx)
		if err != nil {
			return 0, err
		}
		return s.parseCount(out)
	case s.EffectsURL != nil:
		r := s.fresh().Bare("GET").Without(s.KeyHeader)
		r.URL, r.Whole = s.EffectsURL, true
		e := s.sendPatiently(ctx, r)
		if e.Response == nil {
			return 0, fmt.Errorf("GET %s: no answer (%w)", s.EffectsURL.Redacted(), e.Err)
		}
		if !e.Success() {
			return 0, fmt.Errorf("GET %s: %s%s", s.EffectsURL.Redacted(), e, s.excerpt(e))
		}
		return s.parseCount(e.Response.Body)
	}
	return 0, nil
}

// parseCount reads what -effects printed.
func (s *Session) parseCount(output []byte) (int, error) {
	n, err := hook.ParseCount(output)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, s.shown(string(output), 60))
	}
	return n, err
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
	w.before = w.count(0)
	return w
}

// count counts until there are as many as want, and ends the check if that cannot be.
func (w *watch) count(want int) int {
	n, err := w.t.s.awaitCount(w.t.ctx, want)
	if err != nil {
		w.t.NotAsked("the effects cannot be counted: %v", err)
	}
	return n
}

// See adds exchanges whose ids are compared.
func (w *watch) See(exchanges ...ask.Exchange) { w.seen = append(w.seen, exchanges...) }

// Effects returns how many effects there were: what is counted, or how many runs the ids of the successes tell of. It
// waits for as many as want, which may be late.
func (w *watch) Effects(want int) int {
	if !w.t.s.countsEffects() {
		return w.t.s.ids.runs(w.seen) - w.known
	}
	// One that is too many may be as late as any other.
	w.t.Pause(min(w.t.s.lag, lagLimit))
	there := w.count(w.before+want) - w.before
	switch {
	case there < 0:
		w.wentDown(w.before, w.before+there)
	case there < want:
		w.before += w.stillCounts()
	}
	return there
}

func (w *watch) wentDown(from, to int) {
	w.t.NotAsked("the effects went down from %d to %d: they do not survive this, so they cannot be counted", from, to)
}

// stillCounts ends the check if a new operation is not counted either: the list may be cut to a page. It returns how many
// effects that operation had.
func (w *watch) stillCounts() int {
	before := w.count(0)
	if e := w.t.s.sendPatiently(w.t.ctx, w.t.s.fresh()); !e.Success() {
		return 0
	}
	now := w.count(before + 1)
	if now <= before {
		w.t.NotAsked("the effects no longer go up (%d): is the list that is counted cut to a page?", now)
	}
	return now - before
}

// Survives ends the check if effects were forgotten, such as by a restart, after there had been n since the watch began.
// It waits until the effects can be counted again.
func (w *watch) Survives(n int) {
	for deadline := time.Now().Add(w.t.s.Patience); w.t.s.countsEffects(); w.t.Pause(100 * time.Millisecond) {
		now, err := w.t.s.count(w.t.ctx)
		switch {
		case err == nil && now < w.before+n:
			w.wentDown(w.before+n, now)
		case err == nil:
			return
		case time.Now().After(deadline):
			w.t.NotAsked("the effects cannot be counted any more: %v", err)
		}
	}
}

// Once fails the check unless there was exactly one effect.
func (w *watch) Once() { w.t.Once(w.Effects(1)) }

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
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
