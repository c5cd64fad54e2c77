package check

import (
	"bytes"
	"slices"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// concurrent returns the check that n requests at one instant have one effect.
func concurrent(n, rounds int, instances bool) func(*T) {
	return func(t *T) {
		overlapped := 0
		for i := 0; i < rounds || overlapped < 2 && i < 3*rounds; i++ { // more on a machine too busy for two at once
			overlapped = max(overlapped, t.together(n, instances, func(r ask.Request) ask.Request { return r }))
		}
		if overlapped < 2 {
			t.NotAsked("no two of %d requests were under way at the same time", n)
		}
		t.Say("up to %d of %d had been sent before the first was answered", overlapped, n)
	}
}

// together sends an operation n times at one instant, and fails unless there is one effect. It returns how many had been
// sent before one was answered.
func (t *T) together(n int, instances bool, change func(ask.Request) ask.Request) (overlapped int) {
	op := t.s.operation()
	requests := slices.Repeat([]ask.Request{change(t.s.request(op))}, n)
	if instances {
		for i := 1; i < n; i += 2 {
			requests[i] = at(requests[i], t.s.Also, op)
		}
	}
	w := t.Watch()
	answers := t.SendAll(requests)
	if successes(answers...) == 0 {
		settled := t.Settle(requests[0])
		if !settled.Success() {
			t.NotAsked("none of %d requests at once was a success, nor one after them: %s", n, settled)
		}
		w.See(settled)
	}
	w.See(answers...)
	t.Show(answers...)
	w.Once()
	t.oneBody(answers)
	return ask.Overlapped(answers)
}

// oneBody fails unless all successes have the same body.
func (t *T) oneBody(answers []ask.Exchange) {
	var first ask.Exchange
	for _, e := range answers {
		switch {
		case !e.Success():
		case first.Response == nil:
			first = e
		case !bytes.Equal(e.Response.Body, first.Response.Body):
			t.Show(first, e)
			t.Failf("one body for all successes", "two different bodies")
		}
	}
}
