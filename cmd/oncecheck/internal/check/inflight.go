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

func (t *T) inflight() *inflight {
	f := memo(t, "inflight", t.askInflight)
	t.sayAtOnce()
	t.Show(append([]ask.Exchange{f.first}, f.duplicates...)...)
	return f
}

func (t *T) askInflight() *inflight {
	t.slowness(t.slowQuery())
	f := new(inflight)
	var r ask.Request
	var w *watch
	duplicates := 2
	if t.s.Slow == nil {
		duplicates = 9
	}
	t.inTime(func() (inTime bool) {
		r, w = t.s.request(t.s.operation()).Query(t.slowQuery()), t.Watch()
		f.first, f.duplicates, inTime = t.during(r, slices.Repeat([]ask.Request{r}, duplicates)...)
		return inTime
	})
	if !f.first.Success() {
		t.NotAsked("the first request was no success: %s", f.first)
	}
	for _, e := range f.duplicates {
		t.refused("in flight", e)
	}
	f.settled = t.Settle(r)
	w.See(f.first, f.settled)
	w.See(f.duplicates...)
	if t.s.SeesEffects() {
		f.effects = w.Effects(1)
	}
	return f
}

func inflightAnswer(t *T) {
	f := t.inflight()
	answered := 0
	for _, e := range f.duplicates {
		if e.Response == nil {
			continue
		}
		answered++
		if !t.isInFlight(e) && !sameBody(f.first, e) {
			t.Failf(statuses(t.s.Statuses.InFlight)+", or the first's response", "%s", e)
		}
	}
	if answered == 0 {
		t.NotAsked("no duplicate was answered within -timeout")
	}
}

func inflightOnce(t *T) {
	if f := t.inflight(); f.effects != 1 {
		t.Failf("one effect", "%s", effects(f.effects))
	}
}

func inflightTime(t *T) {
	for _, e := range t.inflight().duplicates {
		if e.Response == nil {
			t.Failf("an answer", "%s", e)
		}
	}
}

// conflict returns a duplicate that was refused as in flight.
func (t *T) conflict() ask.Exchange {
	f := t.inflight()
	for _, e := range f.duplicates {
		if t.isInFlight(e) {
			t.Show(f.first, e)
			return e
		}
	}
	t.NotAsked("no duplicate was refused as in flight")
	return ask.Exchange{}
}

func inflightRetryAfter(t *T) {
	if e := t.conflict(); e.Response.Header.Get("Retry-After") == "" {
		t.Failf("Retry-After", "none")
	}
}

func inflightRetryAfterSane(t *T) {
	r := t.conflict().Response
	value := r.Header.Get("Retry-After")
	if value == "" {
		t.NotAsked("the refusal has no Retry-After")
	}
	if seconds, ok := retryAfter(value, r.Header); !ok || seconds < 1 || seconds > 300 {
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
	f := t.inflight()
	t.Show(append(t.result.Shown, f.settled)...)
	if !sameBody(f.first, f.settled) {
		t.Failf("the first's response", "%s", f.settled)
	}
}
