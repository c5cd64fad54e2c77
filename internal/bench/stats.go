// What several rounds come to: medians, quartiles and ratios.

package main

import (
	"fmt"
	"slices"
)

// spread is the median of several rounds, and the quartiles. Each is a value that was measured, never a mean of two.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	last := len(sorted) - 1
	return spread{sorted[last/4], sorted[last/2], sorted[last-last/4]}
}

// format writes the median and, in brackets, the quartiles.
func (s spread) format(verb string) string {
	return fmt.Sprintf(verb+" ("+verb+"–"+verb+")", s.median, s.low, s.high)
}

// ratio returns how many times as fast as the fastest of the others the first one of ids was in a round.
func ratio(round scores, ids []string) float64 {
	best := 0.0
	for _, other := range ids[1:] {
		best = max(best, round[other])
	}
	return round[ids[0]] / best
}
