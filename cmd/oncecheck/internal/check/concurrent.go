package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// bursts are how many requests are sent at one instant, and how often. On a machine too busy for two at once it is more often.
var bursts = []struct{ size, rounds int }{{2, 10}, {10, 4}, {50, 2}}

// concurrent returns the check that requests at one instant have one effect.
func concurrent(instances bool) func(*T) {
	return func(t *T) {
		var worst []burst // of each size
		overlapped, biggest := 0, 0
		for _, b := range bursts {
			if b.size > t.s.Client.Parallel() && b.size > bursts[0].size {
				continue
			}
			together, wrong := 0, burst{}
			for i := 0; i < b.rounds || together < 2 && i < 3*b.rounds; i++ {
				one := sendTogether(t, b.size, instances, func(r ask.Request) ask.Request { return r })
				together = max(together, one.overlapped)
				if one.isWorse(wrong) {
					wrong = one
				}
			}
			if wrong.isWrong() {
				worst = append(worst, wrong)
			}
			overlapped, biggest = max(overlapped, together), b.size
		}
		for i, b := range slices.Backward(worst) {
			also := make([]string, i)
			for j, smaller := range worst[:i] {
				also[j] = fmt.Sprintf("%d of %d", smaller.effects, smaller.size)
			}
			b.judge(t, also...)
		}
		t.skipIf(overlapped < 2, "no two of %d requests were under way at the same time", biggest)
		t.Say("up to %d of %d had been sent before the first was answered", overlapped, biggest)
	}
}

// burst is the result of an operation that was sent several times at one instant.
type burst struct {
	size, effects, overlapped int
	answers                   []ask.Exchange
	differ                    []ask.Exchange // two successes with two bodies, or none
}

func (b burst) isWrong() bool { return b.size > 0 && (b.effects != 1 || b.differ != nil) }

func (b burst) isWorse(than burst) bool {
	return b.isWrong() && (!than.isWrong() || b.effects > than.effects)
}

// judge fails the check if there was not one effect, or not one body. also are the effects of smaller bursts.
func (b burst) judge(t *T, also ...string) {
	t.Show(b.answers...)
	smaller := ""
	if len(also) > 0 {
		smaller = "; " + strings.Join(also, ", ")
	}
	t.failIf(b.effects != 1, "one effect", "%s of %d requests at one instant%s", effects(b.effects), b.size, smaller)
	if b.differ != nil {
		t.Show(b.differ...)
		t.Failf("one body for all successes", "two different bodies")
	}
}

// sendTogether sends an operation n times at one instant, to both instances or to one.
func sendTogether(t *T, n int, instances bool, change func(ask.Request) ask.Request) burst {
	op := t.s.operation()
	requests := slices.Repeat([]ask.Request{change(t.s.request(op))}, n)
	if instances {
		for i := 1; i < n; i += 2 {
			requests[i] = at(requests[i], t.s.Also, op)
		}
	}
	w := t.Watch()
	b := burst{size: n, answers: t.SendAll(requests)}
	if successes(b.answers...) == 0 {
		settled := t.Settle(requests[0])
		t.skipIf(!settled.Success(), "none of %d requests at once was a success, nor one after them: %s", n, settled)
		w.See(settled)
	}
	b.effects, b.differ, b.overlapped = w.try(1, b.answers...).effects, twoBodies(b.answers), ask.Overlapped(b.answers)
	return b
}

// twoBodies returns two successes with different bodies, or nothing.
func twoBodies(answers []ask.Exchange) []ask.Exchange {
	var first ask.Exchange
	for _, e := range answers {
		switch {
		case !e.Success():
		case first.Response == nil:
			first = e
		case !e.Response.SameBody(first.Response):
			return []ask.Exchange{first, e}
		}
	}
	return nil
}
