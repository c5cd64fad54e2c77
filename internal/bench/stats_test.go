package main

import (
	"slices"
	"testing"
)

func TestSpreadOf(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{2, 1}, spread{1, 1, 2}},
		{[]float64{5, 1, 100, 3, 2}, spread{2, 3, 5}},
		{[]float64{9, 8, 7, 6, 5, 4, 3, 2, 1}, spread{3, 5, 7}},
	} {
		given := slices.Clone(test.values)
		if got := spreadOf(given); got != test.want {
			t.Errorf("spreadOf(%v) = %v, want %v", test.values, got, test.want)
		}
		if !slices.Equal(given, test.values) {
			t.Errorf("spreadOf(%v) has changed its argument to %v", test.values, given)
		}
	}
}

func ratios(rounds []scores, ids ...string) (all []float64) {
	for _, s := range each(rounds, ids...) {
		all = append(all, ratio(s))
	}
	return all
}

// The machine was half as fast in the second round. The ratios do not show it, as that of the medians would.
func TestRatiosAreTakenWithinARound(t *testing.T) {
	rounds := []scores{
		{"us": {rate: 100}, "them": {rate: 50}},
		{"us": {rate: 50}, "them": {rate: 25}},
		{"us": {rate: 210}, "them": {rate: 100}},
	}
	if got, want := ratios(rounds, "us", "them"), []float64{2, 2, 2.1}; !slices.Equal(got, want) {
		t.Errorf("ratios = %v, want %v", got, want)
	}
}

func TestRatiosAreToTheBestOfARound(t *testing.T) {
	rounds := []scores{
		{"us": {rate: 100}, "a": {rate: 50}, "b": {rate: 200}},
		{"us": {rate: 100}, "a": {rate: 400}, "b": {rate: 200}},
	}
	if got, want := ratios(rounds, "us", "a", "b"), []float64{0.5, 0.25}; !slices.Equal(got, want) {
		t.Errorf("ratios = %v, want %v", got, want)
	}
}

func TestRatiosLeaveOutRoundsThatLackOne(t *testing.T) {
	rounds := []scores{
		{"us": {rate: 100}},
		{"them": {rate: 50}},
		{"us": {rate: 100}, "them": {rate: 50}},
		{},
	}
	if got, want := ratios(rounds, "us", "them"), []float64{2}; !slices.Equal(got, want) {
		t.Errorf("ratios = %v, want %v", got, want)
	}
	if got := ratios(rounds, "us", "them", "others"); len(got) != 0 {
		t.Errorf("ratios to one that was never measured = %v, want none", got)
	}
}
