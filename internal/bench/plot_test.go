package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestPlot(t *testing.T) {
	d := smallCurve().dimensions()[2]
	p := plotOf(d, lineOf(d, 400, 30, 2))
	elements := wellFormed(t, p.svg())

	circles := elements["circle"]
	if len(circles) != 2*3 || len(elements["polyline"]) != 2 {
		t.Fatalf("%d points on %d lines, want 6 on 2", len(circles), len(elements["polyline"]))
	}
	var xs, ys []float64
	for _, c := range circles[:3] {
		x, xErr := strconv.ParseFloat(c["cx"], 64)
		y, yErr := strconv.ParseFloat(c["cy"], 64)
		if xErr != nil || yErr != nil || x < leftEdge || x > rightEdge || y < topEdge || y > bottomEdge {
			t.Errorf("a point at %v is not in the frame", c)
		}
		xs, ys = append(xs, x), append(ys, y)
	}
	// Downwards on the screen: less is lower.
	if !slices.IsSorted(xs) || !slices.IsSorted(ys) || xs[0] == xs[1] {
		t.Errorf("points at x %v, y %v", xs, ys)
	}
	for _, label := range []string{">0 B<", ">1 MiB<", ">500<", ">2<", ">Length of the bodies<", ">replay<"} {
		if !strings.Contains(p.svg(), label) {
			t.Errorf("the label %s is missing", label)
		}
	}
}

func TestAxisIsLogarithmic(t *testing.T) {
	a := axis{low: 1, high: 10_000, from: 100, to: 500}
	for value, want := range map[float64]float64{1: 100, 10: 200, 100: 300, 10_000: 500} {
		if got := a.at(value); got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%v is at %v, want %v", value, got, want)
		}
	}
}

// One point, one value, none at all: nothing of it is a plot, but it is drawn.
func TestDegeneratePlots(t *testing.T) {
	d := smallCurve().dimensions()[0]
	for _, rates := range [][]float64{{5}, {0}, {0, 0}, {7, 7}} {
		text := plotOf(d, lineOf(d, rates...)).svg()
		wellFormed(t, text)
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%v: %s", rates, text)
		}
	}
}
