// The plots of the curve.

package main

import (
	"errors"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// kinds are the kinds of requests that the curve measures, with their titles.
var kinds = []struct{ name, title string }{{first, "first request"}, {replay, "replay"}}

// newPlot returns a plot with logarithmic axes, transparent and in a gray that is readable on white and on black.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = x, y
	gray := color.Gray{0x88}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Scale = plot.LogScale{}
		axis.Color, axis.Tick.Color = gray, gray
	}
	for _, style := range []*text.Style{
		&p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Label.TextStyle, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Color, style.Font.Variant = gray, "Sans"
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, color.Gray{0xc0}
	p.Add(grid)
	p.Legend.Left = true
	return p
}

// drawPlot draws the medians of the rates over the dimension, and the quartiles as bars. A logarithmic axis has no 0: it is
// drawn at a quarter of the next value.
func drawPlot(file string, d dimension, spots map[point]*spot) error {
	p := newPlot(d.title, "answers a second")
	var ticks plot.ConstantTicks
	for i, step := range d.steps {
		x := float64(step.value)
		if x == 0 && i+1 < len(d.steps) {
			x = float64(d.steps[i+1].value) / 4
		}
		ticks = append(ticks, plot.Tick{Value: max(x, 0.25), Label: step.label})
	}
	var lines []any
	var bars []interface {
		plotter.XYer
		plotter.YErrorer
	}
	for _, kind := range kinds {
		var samples []plotter.XYer
		for i, step := range d.steps {
			var xys plotter.XYs
			for _, m := range spots[step.point].marks[kind.name] {
				xys = append(xys, plotter.XY{X: ticks[i].Value, Y: max(m.rate(), 1)})
			}
			samples = append(samples, xys)
		}
		points, err := plotutil.NewErrorPoints(func(values []float64) (median, below, above float64) {
			s := spreadOf(values)
			return s.median, s.median - s.low, s.high - s.median
		}, samples...)
		if err != nil {
			return err
		}
		lines, bars = append(lines, kind.title, points), append(bars, points)
	}
	if err := errors.Join(plotutil.AddLinePoints(p, lines...), plotutil.AddYErrorBars(p, bars...)); err != nil {
		return err
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks, plot.TickerFunc(roundTicks)
	p.X.Min, p.X.Max = p.X.Min/1.5, p.X.Max*1.5
	marks := roundTicks(p.Y.Min, p.Y.Max)
	p.Y.Min, p.Y.Max = marks[0].Value, marks[len(marks)-1].Value
	return p.Save(18*vg.Centimeter, 10*vg.Centimeter, file)
}

// roundTicks returns 1, 2 and 5 times powers of 10 from low to high, and the ones below and above.
func roundTicks(low, high float64) (ticks []plot.Tick) {
	for power := 1.0; ; power *= 10 {
		for _, factor := range []float64{1, 2, 5} {
			value := factor * power
			if value <= low {
				ticks = nil
			}
			ticks = append(ticks, plot.Tick{Value: value, Label: short(int(value))})
			if value > high {
				return ticks
			}
		}
	}
}
