package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

func (a about) writeCurve(w io.Writer, cfg curveConfig, spots []*spot) {
	a.head(w, "in process", spots[0].server.version, cfg.flags)
	fmt.Fprintf(w, "- %s of %v, seed: %d; medians (and quartiles); a pool of %s; base: %v\n",
		plural(cfg.rounds, "round"), cfg.time, cfg.seed, plural(cfg.pool, "connection"), cfg.base)
	placed := map[string]bool{}
	for _, s := range spots {
		text := s.place.String()
		if s.callers == 1 {
			text = "1 caller: " + text
		}
		if !placed[text] {
			fmt.Fprintf(w, "- %s\n", text)
		}
		placed[text] = true
	}
}

// writeDimension writes a table for first requests and one for replays.
func writeDimension(w io.Writer, d dimension, line []*spot) {
	for _, kind := range []string{first, replay} {
		fmt.Fprintf(w, "\n### %s: %s\n\n", d.title, strings.ToLower(titles[kind]))
		fmt.Fprint(w, "| | answers a second | p50 | p99 | CPU, bench + Redis | errors |\n|---|---|---|---|---|---|\n")
		for _, s := range line {
			fmt.Fprintf(w, "| %s | %v |\n", d.row(s), s.marks[kind])
		}
		fmt.Fprintf(w, "\n%s\n", bend(d, line, kind))
		for _, s := range line {
			if err := s.marks[kind].failure(); err != nil {
				fmt.Fprintf(w, "\nAn error at %s: %.120v\n", d.label(d.value(s.point)), err)
			}
		}
	}
}

// row returns the label of a row.
func (d dimension) row(s *spot) string {
	label := d.label(d.value(s.point))
	if d.name == "bodies" {
		return fmt.Sprintf("%s, %s stored", label, plural(s.keys, "key"))
	}
	return label
}

// String returns the cells of a row: medians, and all errors.
func (m marks) String() string {
	median := func(of func(mark) float64) float64 { return m.spread(of).median }
	latency := func(of func(mark) time.Duration) string {
		return digits(time.Duration(median(func(m mark) float64 { return float64(of(m)) })))
	}
	failed, all := 0, 0
	for _, mark := range m {
		failed, all = failed+mark.failed, all+mark.failed+mark.right
	}
	return fmt.Sprintf("%s | %s | %s | %.2f + %.2f | %d of %d", m.rates().format("%.0f"),
		latency(func(m mark) time.Duration { return m.p50 }), latency(func(m mark) time.Duration { return m.p99 }),
		median(func(m mark) float64 { return m.bench }), median(func(m mark) float64 { return m.redis }), failed, all)
}

// bend says where the most throughput is, and from where to where it is nearly that.
func bend(d dimension, line []*spot, kind string) string {
	rate := func(i int) float64 { return line[i].marks[kind].rates().median }
	label := func(i int) string { return d.label(d.value(line[i].point)) }
	best := 0
	for i := range line {
		if rate(i) > rate(best) {
			best = i
		}
	}
	from, to := best, best
	for from > 0 && rate(from-1) >= 0.9*rate(best) {
		from--
	}
	for to < len(line)-1 && rate(to+1) >= 0.9*rate(best) {
		to++
	}
	text := fmt.Sprintf("The most, %.0f a second, is at %s", rate(best), label(best))
	if from == to {
		return text + "; nothing else is within 10 % of it."
	}
	return text + fmt.Sprintf("; within 10 %% of it: %s to %s.", label(from), label(to))
}

func (m marks) spread(of func(mark) float64) spread {
	var values []float64
	for _, mark := range m {
		values = append(values, of(mark))
	}
	return spreadOf(values)
}

func (m marks) rates() spread { return m.spread(func(m mark) float64 { return m.rate }) }

// failure returns a wrong answer, nil if there was none.
func (m marks) failure() error {
	for _, mark := range m {
		if mark.failure != nil {
			return mark.failure
		}
	}
	return nil
}

// digits writes a time with three digits, in microseconds, milliseconds or seconds.
func digits(d time.Duration) string {
	unit, name := time.Microsecond, "µs"
	switch {
	case d >= time.Second:
		unit, name = time.Second, "s"
	case d >= time.Millisecond:
		unit, name = time.Millisecond, "ms"
	}
	value := float64(d) / float64(unit)
	switch {
	case value < 9.995:
		return fmt.Sprintf("%.2f %s", value, name)
	case value < 99.95:
		return fmt.Sprintf("%.1f %s", value, name)
	}
	return fmt.Sprintf("%.0f %s", value, name)
}

// size writes a number of bytes.
func size(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// short writes a number with k for thousands and M for millions.
func short(n int) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%gM", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%gk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
