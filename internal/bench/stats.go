package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// spread is what several rounds came to: the median and the quartiles.
type spread struct{ low, median, high float64 }

// spreadOf returns NaNs for no values.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	return spread{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)}
}

// quantile interpolates between the two nearest values (type 7 of Hyndman and Fan).
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// format writes the median and, in brackets, the quartiles, or nothing for no values.
func (s spread) format(verb string) string {
	if math.IsNaN(s.median) {
		return ""
	}
	return fmt.Sprintf(verb+" ("+verb+"–"+verb+")", s.median, s.low, s.high)
}

// each returns f of every round that has all the contenders.
func each(rounds []scores, ids []string, f func([]score) float64) []float64 {
	var values []float64
	for _, round := range rounds {
		var found []score
		for _, id := range ids {
			if s, ok := round[id]; ok {
				found = append(found, s)
			}
		}
		if len(found) == len(ids) {
			values = append(values, f(found))
		}
	}
	return values
}

// ratios returns how many times as fast as the fastest of the others, in that round, the contender was in each.
func ratios(rounds []scores, contender string, others ...string) []float64 {
	return each(rounds, append([]string{contender}, others...), func(s []score) float64 {
		best := slices.MaxFunc(s[1:], func(a, b score) int { return cmp.Compare(a.rate, b.rate) })
		return s[0].rate / best.rate
	})
}
