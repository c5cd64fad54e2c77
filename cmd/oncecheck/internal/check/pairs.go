package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// pair is a request that was a success, and its repetition when the key had come to rest.
type pair struct {
	query        string // the -sample; empty: the plain request
	first, again ask.Exchange
	effects      int
	isSeen       bool // effects would tell a second run
}

// pairs are those of the plain request and of each sample.
type pairs struct {
	all []pair
	bad []string // the samples that were no success, and what they got
}

// pairs sends the plain request and each sample twice, once in a run.
func askPairs(t *T) pairs {
	return memo(t, "pairs", func() (p pairs) {
		for _, query := range append([]string{""}, t.s.Samples...) {
			r, w := t.s.fresh().Query(query), t.Watch()
			one := pair{query: query, first: t.SendPatiently(r)}
			if !one.first.Success() {
				p.bad = append(p.bad, fmt.Sprintf("the first request with %q was no success: %s", query, one.first))
				continue
			}
			one.again = t.Rest(r)
			if one.isSeen = t.s.countsEffects() || t.s.ids.areIn(one.first.Response); one.isSeen {
				one.effects = w.try(1, one.first, one.again).effects
			}
			p.all = append(p.all, one)
		}
		return p
	})
}

// of names the sample.
func (p pair) of() string {
	if p.query == "" {
		return ""
	}
	return fmt.Sprintf(" (with %q)", p.query)
}

// onceSamples also says which samples could not be asked: a run without them must not look complete.
func onceSamples(t *T) {
	p := askPairs(t)
	var shown []ask.Exchange
	var got, noIDs, idle []string
	for _, one := range p.all {
		switch {
		case one.query == "":
		case !one.isSeen:
			noIDs = append(noIDs, strconv.Quote(one.query))
		case one.effects == 0:
			idle = append(idle, fmt.Sprintf("nothing happens with %q", one.query))
		case one.effects > 1:
			shown, got = append(shown, one.first, one.again), append(got, effects(one.effects)+one.of())
		}
	}
	if shown != nil {
		t.Show(shown...)
		t.Failf("one effect", "%s", strings.Join(got, "; "))
	}
	var rest []string
	if noIDs != nil {
		rest = append(rest, "give -effects: there is no id in the response with "+strings.Join(noIDs, ", "))
	}
	if rest = slices.Concat(rest, p.bad, idle); len(rest) > 0 {
		t.NotAsked("%s", strings.Join(rest, "; "))
	}
}
