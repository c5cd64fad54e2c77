package check

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// inflight is a slow operation, duplicates of it, and its repetition in the end.
type inflight struct {
	first      ask.Exchange
	duplicates []ask.Exchange
	settled    ask.Exchange
	effects    int
}

func askInflight(t *T) *inflight {
	f := memo(t, "inflight", func() *inflight {
		duplicates := 2
		if t.s.Slow == nil {
			duplicates = 9
		}
		all, w := during(t, func(_ ask.Operation, r ask.Request) []ask.Request { return slices.Repeat([]ask.Request{r}, duplicates) })
		f := &inflight{first: all[0], duplicates: all[1:]}
		t.skipIf(!f.first.Success(), "the first request was no success: %s", f.first)
		for _, e := range f.duplicates {
			t.refused("in flight", e)
		}
		r := f.first.Request
		r.Note, r.AtOnce, r.Runs = "", false, false
		f.settled = t.SettleAnswered(r)
		f.effects = w.try(1, append(all, f.settled)...).effects
		return f
	})
	if t.s.Slow == nil {
		t.Say(sentAtOnce)
	}
	t.Show(append([]ask.Exchange{f.first}, f.duplicates...)...)
	return f
}

func inflightAnswer(t *T) {
	f := askInflight(t)
	answered := 0
	for _, e := range f.duplicates {
		if e.Response == nil {
			continue
		}
		answered++
		t.failIf(!t.s.Statuses.isInFlight(e) && !sameBody(f.first, e), statuses(t.s.Statuses.InFlight)+", or the first's response", "%s", e)
	}
	t.skipIf(answered == 0, "no duplicate was answered within -timeout")
}

func inflightOnce(t *T) { t.Once(askInflight(t).effects) }

func inflightTime(t *T) {
	for _, e := range askInflight(t).duplicates {
		t.failIf(e.Response == nil, "an answer", "%s", e)
	}
}

// conflict returns the header of a duplicate that was refused as in flight.
func conflict(t *T) http.Header {
	f := askInflight(t)
	i := slices.IndexFunc(f.duplicates, t.s.Statuses.isInFlight)
	t.skipIf(i < 0, "no duplicate was refused as in flight")
	t.Show(f.first, f.duplicates[i])
	return f.duplicates[i].Response.Header
}

func inflightRetryAfter(t *T) {
	t.failIf(conflict(t).Get("Retry-After") == "", "Retry-After", "none")
}

func inflightRetryAfterSane(t *T) {
	h := conflict(t)
	value := h.Get("Retry-After")
	t.skipIf(value == "", "the refusal has no Retry-After")
	if seconds, ok := retryAfter(value, h); !ok || seconds < 1 || seconds > 300 {
		t.Failf("a whole number of seconds from 1 to 300, or such a date", "%s", quote(value))
	}
}

// retryAfter returns the seconds of a Retry-After. Those of a date are counted from the response's own Date.
func retryAfter(value string, h http.Header) (seconds int, ok bool) {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return int(n), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return int(at.Sub(now) / time.Second), true
}

func inflightThenReplay(t *T) {
	f := askInflight(t)
	t.Show(append(t.result.Shown, f.settled)...)
	t.Same(f.first, f.settled)
}
