package main

import (
	"fmt"
	"math"
	"strings"
)

// plot has logarithmic axes.
type plot struct {
	title, x, y string
	ticks       []tick // of the x axis
	lines       []plotLine
}

type tick struct {
	at    float64
	label string
}

type plotLine struct {
	label, color string
	at           []float64
	values       []spread
}

// plotOf draws throughput over the dimension. A 0, which has no place on such an axis, stands a quarter below the least
// other value.
func plotOf(d dimension, line []*spot) plot {
	p := plot{title: "Throughput, in process", x: d.title, y: "answers a second"}
	for i, s := range line {
		at := float64(d.value(s.point))
		if at == 0 && i+1 < len(line) {
			at = float64(d.value(line[i+1].point)) / 4
		}
		p.ticks = append(p.ticks, tick{max(at, 0.25), d.label(d.value(s.point))})
	}
	// Readable on white and on black.
	for _, l := range []plotLine{{label: first, color: "#d9822b"}, {label: replay, color: "#2f81f7"}} {
		kind := l.label
		l.label = strings.ToLower(titles[kind])
		for i, s := range line {
			l.at = append(l.at, p.ticks[i].at)
			l.values = append(l.values, s.marks[kind].spread(func(m mark) float64 { return m.rate }))
		}
		p.lines = append(p.lines, l)
	}
	return p
}

// axis is where values lie, in pixels.
type axis struct{ low, high, from, to float64 }

func (a axis) at(value float64) float64 {
	return a.from + (math.Log(value)-math.Log(a.low))/(math.Log(a.high)-math.Log(a.low))*(a.to-a.from)
}

// The plot's frame, in pixels.
const (
	plotWidth, plotHeight = 720, 400
	leftEdge, rightEdge   = 64, 700
	topEdge, bottomEdge   = 56, 344
	neutral               = "#808890"
)

func (p plot) svg() string {
	x, y := p.axes()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12"`+
		` fill="%s">`, plotWidth, plotHeight, neutral)
	fmt.Fprintf(&b, "\n<title>%s: %s</title>\n", p.title, p.x)
	p.drawAxes(&b, x, y)
	for i, l := range p.lines {
		l.draw(&b, x, y)
		at := leftEdge + 120 + 160*i
		fmt.Fprintf(&b, `<path d="M%d 28h24" stroke="%s" stroke-width="2"/><text x="%d" y="32">%s</text>`+"\n",
			at, l.color, at+30, l.label)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// axes leave some room on both sides. The one of y goes from a round value to a round value.
func (p plot) axes() (x, y axis) {
	x = axis{low: math.Inf(1), from: leftEdge + 24, to: rightEdge - 24}
	for _, t := range p.ticks {
		x.low, x.high = min(x.low, t.at), max(x.high, t.at)
	}
	y = axis{low: math.Inf(1), from: bottomEdge, to: topEdge}
	for _, l := range p.lines {
		for _, v := range l.values {
			y.low, y.high = min(y.low, max(v.low, 1)), max(y.high, v.high, 1)
		}
	}
	steps := roundValues(y.low/5, y.high*5)
	for len(steps) > 2 && steps[1] <= y.low {
		steps = steps[1:]
	}
	for len(steps) > 2 && steps[len(steps)-2] >= y.high {
		steps = steps[:len(steps)-1]
	}
	y.low, y.high = steps[0], steps[len(steps)-1]
	if x.low == x.high { // one point
		x.low, x.high = x.low/2, x.high*2
	}
	return x, y
}

// roundValues returns 1, 2 and 5 times powers of 10.
func roundValues(low, high float64) (values []float64) {
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, factor := range []float64{1, 2, 5} {
			if v := factor * power; v >= low*(1-1e-9) && v <= high*(1+1e-9) {
				values = append(values, v)
			}
		}
	}
	return values
}

func (p plot) drawAxes(b *strings.Builder, x, y axis) {
	for _, v := range roundValues(y.low, y.high) {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="%s" stroke-opacity="0.25"/>`, leftEdge, y.at(v), rightEdge, neutral)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", leftEdge-8, y.at(v)+4, short(int(v)))
	}
	for _, t := range p.ticks {
		fmt.Fprintf(b, `<path d="M%.1f %dv5" stroke="%s"/>`, x.at(t.at), bottomEdge, neutral)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x.at(t.at), bottomEdge+20, t.label)
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="%s"/>`+"\n",
		leftEdge, topEdge, bottomEdge, rightEdge, neutral)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`, (leftEdge+rightEdge)/2, plotHeight-12, p.x)
	fmt.Fprintf(b, `<text x="8" y="32">%s</text>`+"\n", p.y)
}

// draw draws the medians, and the quartiles as bars.
func (l plotLine) draw(b *strings.Builder, x, y axis) {
	var points []string
	for i, v := range l.values {
		at := x.at(l.at[i])
		points = append(points, fmt.Sprintf("%.1f,%.1f", at, y.at(max(v.median, 1))))
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="%s"/>`, at, y.at(max(v.low, 1)), y.at(max(v.high, 1)), l.color)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", at, y.at(max(v.median, 1)), l.color)
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n",
		strings.Join(points, " "), l.color)
}
