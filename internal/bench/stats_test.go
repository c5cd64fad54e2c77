package main

import (
	"math"
	"slices"
	"testing"
)

func TestSpreadOf(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{2, 1}, spread{1.25, 1.5, 1.75}},
		{[]float64{3, 1, 2}, spread{1.5, 2, 2.5}},
		{[]float64{5, 1, 100, 3, 2}, spread{2, 3, 5}},
	} {
		given := slices.Clone(test.values)
		if got := spreadOf(given); got != test.want {
			t.Errorf("spreadOf(%v) = %v, want %v", test.values, got, test.want)
		}
		if !slices.Equal(given, test.values) {
			t.Errorf("spreadOf(%v) has changed its argument to %v", test.values, given)
		}
	}
	if got := spreadOf(nil); !math.IsNaN(got.median) || got.format("%.2f") != "" {
		t.Errorf("spreadOf(nil) = %v, want NaNs and an empty cell", got)
	}
}

// The machine was half as fast in the second round. The ratios do not show it, as that of the medians would.
func TestRatiosAreTakenWithinARound(t *testing.T) {
	rounds := []scores{
		{"us": {rate: 100}, "them": {rate: 50}},
		{"us": {rate: 50}, "them": {rate: 25}},
		{"us": {rate: 210}, "them": {rate: 100}},
	}
	got := ratios(rounds, "us", "them")
	if want := []float64{2, 2, 2.1}; !slices.Equal(got, want) {
		t.Errorf("ratios = %v, want %v", got, want)
	}
	if got := spreadOf(got).median; got != 2 {
		t.Errorf("median = %v, want 2", got)
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
