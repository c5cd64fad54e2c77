// The table of the soak: a row for each interval, and then the change from the first quarter to the last.

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"time"
)

// watch samples a mix.
type watch struct {
	mix     *mix
	out     io.Writer
	began   time.Time // the interval that the next sample is of
	samples []sample
	failure error // the first one
}

// sample has a value for each of sampleColumns.
type sample []float64

// sampleColumns are what a sample has. A value that keeps rising is a leak.
var sampleColumns = []struct {
	title string
	write func(float64) string
}{
	{"answers a second", whole},
	{"p50", seconds},
	{"p99", seconds},
	{"p99.9", seconds},
	{"heap, MiB", tenth},
	{"resident, MiB", tenth},
	{"goroutines", whole},
	{"Redis, MiB", tenth},
	{"keys", whole},
	{"errors", whole},
}

func whole(v float64) string   { return strconv.FormatFloat(v, 'f', 0, 64) }
func tenth(v float64) string   { return strconv.FormatFloat(v, 'f', 1, 64) }
func seconds(v float64) string { return digits(time.Duration(v * float64(time.Second))) }

// run writes a row for each interval. It begins when the first responses have expired: as many then expire as are stored.
func (w *watch) run(ctx context.Context, cfg soakConfig) error {
	timer := time.NewTimer(cfg.retention + cfg.retention/2)
	for after := time.Duration(0); after <= cfg.length; after += cfg.every {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			timer.Reset(cfg.every)
		}
		s := w.sample(ctx)
		if after == 0 { // what came before is not in the table
			w.head("after")
			continue
		}
		w.samples = append(w.samples, s)
		w.row(after.String(), s)
	}
	return nil
}

// sample ends an interval. The garbage collection comes after the times were taken, so that its pause is in the next ones.
func (w *watch) sample(ctx context.Context) sample {
	c, now := w.mix.tally.take(), time.Now()
	elapsed := now.Sub(w.began).Seconds()
	w.began = now
	if w.failure == nil {
		w.failure = c.failure
	}
	memory, keys := w.mix.server.usage(ctx)
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	const mebi = 1 << 20
	return sample{
		float64(c.latencies.TotalCount()) / elapsed,
		c.quantile(50).Seconds(), c.quantile(99).Seconds(), c.quantile(99.9).Seconds(),
		float64(heap.HeapAlloc) / mebi, float64(residentBytes()) / mebi, float64(runtime.NumGoroutine()),
		float64(memory) / mebi, float64(keys), float64(c.failed),
	}
}

func (w *watch) head(first string) {
	titles := []string{first}
	for _, c := range sampleColumns {
		titles = append(titles, c.title)
	}
	tableHead(w.out, titles...)
}

func (w *watch) row(label string, s sample) {
	cells := []string{label}
	for i, c := range sampleColumns {
		cells = append(cells, c.write(s[i]))
	}
	tableRow(w.out, cells...)
}

// verdict compares the medians of the first quarter of the samples with those of the last.
func (w *watch) verdict() {
	quarter := max(1, len(w.samples)/4)
	before, after := medians(w.samples[:quarter]), medians(w.samples[len(w.samples)-quarter:])
	w.head("medians")
	w.row("first quarter", before)
	w.row("last quarter", after)
	changes := []string{"change"}
	for i := range sampleColumns {
		changes = append(changes, change(before[i], after[i]))
	}
	tableRow(w.out, changes...)
}

// medians returns the median of each column.
func medians(samples []sample) (s sample) {
	for i := range sampleColumns {
		s = append(s, of(samples, func(s sample) float64 { return s[i] }).median)
	}
	return s
}

// change returns the change in percent, and whether it is level: at most a tenth.
func change(before, after float64) string {
	if before == after {
		return "0 %, level"
	}
	percent := 100 * (after - before) / before
	word := "level"
	if percent > 10 {
		word = "rose"
	} else if percent < -10 {
		word = "fell"
	}
	return fmt.Sprintf("%+.1f %%, %s", percent, word)
}
