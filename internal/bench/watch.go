package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"time"
)

// watch looks at a mix again and again.
type watch struct {
	mix   *mix
	out   io.Writer
	began time.Time // of what the next look is about
	seen  int64     // wrong answers that were in a look before
	looks []look
}

// look is one row: values in the order of lookColumns.
type look []float64

// lookColumns are what a look is at. What rises there for long is a leak, or soon will be seen by everybody.
var lookColumns = []struct {
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

// run writes a row for each look, once the load has been on for as long as responses are stored.
func (w *watch) run(ctx context.Context, cfg soakConfig) error {
	if err := sleep(ctx, cfg.retention+cfg.retention/2); err != nil {
		return err
	}
	w.mix.latencies.take()
	w.began = time.Now()
	w.head("after")
	start := w.began
	for n := 1; n <= int(cfg.length/cfg.every); n++ {
		if err := sleep(ctx, time.Until(start.Add(cfg.every*time.Duration(n)))); err != nil {
			return err
		}
		l, err := w.look(ctx)
		if err != nil {
			return err
		}
		w.looks = append(w.looks, l)
		w.row((cfg.every * time.Duration(n)).String(), l)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// look looks. It collects garbage last, so that the pause is in the next look, as the one before is in this.
func (w *watch) look(ctx context.Context) (look, error) {
	times, now := w.mix.latencies.take(), time.Now()
	elapsed := now.Sub(w.began).Seconds()
	failed := w.mix.failed.Load()
	memory, keys, err := w.mix.store.size(ctx)
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	l := look{
		float64(times.total()) / elapsed,
		times.quantile(0.5).Seconds(), times.quantile(0.99).Seconds(), times.quantile(0.999).Seconds(),
		mebi(int64(heap.HeapAlloc)), mebi(residentBytes()), float64(runtime.NumGoroutine()),
		mebi(memory), float64(keys), float64(failed - w.seen),
	}
	w.began, w.seen = now, failed
	return l, err
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// size returns how many bytes and keys the server has.
func (s store) size(ctx context.Context) (bytes, keys int64, err error) {
	info := s.client.InfoMap(ctx, "memory")
	bytes, err = strconv.ParseInt(info.Item("Memory", "used_memory"), 10, 64)
	keys, sizeErr := s.client.DBSize(ctx).Result()
	return bytes, keys, errors.Join(info.Err(), err, sizeErr)
}

func (w *watch) head(first string) {
	fmt.Fprintf(w.out, "| %s |", first)
	for _, c := range lookColumns {
		fmt.Fprintf(w.out, " %s |", c.title)
	}
	fmt.Fprint(w.out, "\n|---|")
	for range lookColumns {
		fmt.Fprint(w.out, "---|")
	}
	fmt.Fprintln(w.out)
}

func (w *watch) row(label string, l look) {
	fmt.Fprintf(w.out, "| %s |", label)
	for i, c := range lookColumns {
		fmt.Fprintf(w.out, " %s |", c.write(l[i]))
	}
	fmt.Fprintln(w.out)
}

// verdict compares the medians of the first quarter of the looks with those of the last.
func (w *watch) verdict() {
	before, after := quarters(w.looks)
	fmt.Fprintln(w.out)
	w.head("medians")
	w.row("first quarter", before)
	w.row("last quarter", after)
	fmt.Fprint(w.out, "| change |")
	for i := range lookColumns {
		fmt.Fprintf(w.out, " %s |", change(before[i], after[i]))
	}
	fmt.Fprintln(w.out)
}

// quarters returns the medians, column by column.
func quarters(looks []look) (before, after look) {
	n := max(1, len(looks)/4)
	for i := range lookColumns {
		column := func(looks []look) float64 {
			var values []float64
			for _, l := range looks {
				values = append(values, l[i])
			}
			return spreadOf(values).median
		}
		before, after = append(before, column(looks[:n])), append(after, column(looks[len(looks)-n:]))
	}
	return before, after
}

// change says in percent how much more it is, and whether that is level: within a tenth.
func change(before, after float64) string {
	switch {
	case before == after:
		return "0 %, level"
	case before == 0:
		return "rose"
	}
	percent := 100 * (after - before) / before
	switch {
	case percent > 10:
		return fmt.Sprintf("%+.1f %%, rose", percent)
	case percent < -10:
		return fmt.Sprintf("%+.1f %%, fell", percent)
	}
	return fmt.Sprintf("%+.1f %%, level", percent)
}
