// What several rounds come to: medians, quartiles and ratios.

package main

import (
	"fmt"
	"slices"
)

// spread is the median of several rounds, and the quartiles. Each is a value that was measured, never a mean of two.
type spread struct{ low, median, high float64 }

// spreadOf returns zeros if there are no values.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	last := len(sorted) - 1
	return spread{sorted[last/4], sorted[last/2], sorted[last-last/4]}
}

// of returns the spread of one property of all samples.
func of[T any](samples []T, property func(T) float64) spread {
	var values []float64
	for _, s := range samples {
		values = append(values, property(s))
	}
	return spreadOf(values)
}

// format writes the median and, in brackets, the quartiles.
func (s spread) format(verb string) string {
	return fmt.Sprintf(verb+" ("+verb+"–"+verb+")", s.median, s.low, s.high)
}

// each returns, for every round that has all contenders, their scores in the order of ids.
func each(rounds []scores, ids ...string) (complete [][]score) {
	for _, round := range rounds {
		var found []score
		for _, id := range ids {
			if s, ok := round[id]; ok {
				found = append(found, s)
			}
		}
		if len(found) == len(ids) {
			complete = append(complete, found)
		}
	}
	return complete
}

// ratio returns how many times as fast as the fastest of the others the first one is.
func ratio(s []score) float64 {
	best := 0.0
	for _, other := range s[1:] {
		best = max(best, other.rate)
	}
	return s[0].rate / best
}
