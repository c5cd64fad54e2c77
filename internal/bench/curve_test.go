package main

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/onceguard/onceguard/middleware"
)

// smallCurve has a point in each corner.
func smallCurve() curveConfig {
	return curveConfig{
		base:    point{callers: 4, keys: 20, body: 100},
		callers: []int{1, 4}, keys: []int{1, 20}, bodies: []int{0, 100, 1 << 20},
		rounds: 2, time: 10 * time.Millisecond,
	}
}

func TestCurve(t *testing.T) {
	redisFor(t)
	cfg := smallCurve()
	cfg.svg = t.TempDir()
	var out strings.Builder
	if err := curve(t.Context(), session{out: &out, progress: t.Output()}, cfg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"base: 4 callers, 20 stored keys, bodies of 100 B\n", "- 1 caller: not pinned",
		"### Concurrent callers: first request\n", "### Stored keys: replay\n", "### Length of the bodies: replay\n",
		"\n| 0 B, 20 keys stored | ", "\n| 1 MiB, 20 keys stored | ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tables lack %q", want)
		}
	}
	if strings.Contains(out.String(), "NaN") {
		t.Error("something was not measured")
	}
	if t.Failed() {
		t.Log(out.String())
	}
	for _, name := range []string{"callers", "keys", "bodies"} {
		wellFormed(t, filepath.Join(cfg.svg, name+".svg"))
	}
}

// Every point has as many keys as it says, and the dimensions share the base.
func TestDimensions(t *testing.T) {
	cfg, err := parseCurve(session{args: []string{"-svg", "d"}, progress: io.Discard})
	if err != nil || cfg.svg != "d" {
		t.Fatalf("got %+v, %v", cfg, err)
	}
	points := map[point]int{}
	for _, d := range cfg.dimensions() {
		for _, s := range d.steps {
			points[s.point]++
			if s.body*s.keys > storedBytes && s.body != cfg.base.body {
				t.Errorf("%v take too much memory", s.point)
			}
		}
	}
	if points[cfg.base] != 3 || len(points) != 17 {
		t.Errorf("%d points, of which the base is in %d dimensions, want 17 and 3", len(points), points[cfg.base])
	}
	if most := (point{callers: 64, keys: 1e6, body: 1024}); points[most] != 1 {
		t.Errorf("%v is missing", most)
	}
}

// spotFor returns one that ends with the test.
func spotFor(t *testing.T) *spot {
	t.Helper()
	redisFor(t)
	s, err := openSpot(t.Context(), point{callers: 4, keys: 20, body: 100}, cores{}, keyText(0, 0, 20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func TestSpot(t *testing.T) {
	s := spotFor(t)
	for _, kind := range []string{first, replay, first} {
		m, err := s.measure(t.Context(), kind, 20*time.Millisecond)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if m.rate() <= 0 || m.quantile(50) <= 0 || m.quantile(99) < m.quantile(50) || m.failed != 0 {
			t.Errorf("%s: %+v", kind, m)
		}
		if m.redis < 0 || m.bench <= 0 || m.bench > 64 {
			t.Errorf("%s: %v cores and %v of Redis", kind, m.bench, m.redis)
		}
		if err := s.server.wantKeys(t.Context(), 20); err != nil {
			t.Errorf("after %s: %v", kind, err)
		}
		if left, err := s.server.sweep(t.Context(), freshDB); left != 0 || err != nil {
			t.Errorf("after %s: %d fresh keys, error %v", kind, left, err)
		}
	}
}

func TestBrokenSpotsFail(t *testing.T) {
	t.Run("replays that run again", func(t *testing.T) {
		s := spotFor(t)
		if err := s.server.clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := s.measure(t.Context(), replay, 10*time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), "ran again") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("first requests of which nothing is kept", func(t *testing.T) {
		s := spotFor(t)
		s.fresh.visitors[0] = newCall(s.fresh.service, s.fresh.body).visit
		_, err := s.measure(t.Context(), first, 10*time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), "were stored") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("wrong answers", func(t *testing.T) {
		s := spotFor(t)
		for i := range s.stored.visitors {
			s.stored.visitors[i] = newCall(http.NotFoundHandler(), nil).visit
		}
		m, err := s.measure(t.Context(), replay, 10*time.Millisecond)
		if err != nil || m.failed == 0 || m.rate() != 0 || !strings.Contains(m.failure.Error(), "status 404, want [201]") {
			t.Errorf("%+v, %v: want wrong answers only", m, err)
		}
	})
}

// A response that is sent though it could not be stored looks right to the caller.
func TestUnstoredIsAnError(t *testing.T) {
	s := spotFor(t)
	observed := middleware.Event{Outcome: middleware.NotStored, Status: http.StatusCreated, Err: errors.New("a reason")}
	s.fresh.visitors[0] = newCall(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.tally.observe(r.Context(), observed)
		s.fresh.service.ServeHTTP(w, r)
	}), s.fresh.body).visit
	s.callers = 1
	m, err := s.measure(t.Context(), first, 10*time.Millisecond)
	if err != nil || m.failed == 0 || m.right() != 0 || m.rate() != 0 || m.failure.Error() != "not-stored: a reason" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestTally(t *testing.T) {
	tally := newTally()
	for i := range 1000 {
		tally.note(nil, time.Now().Add(-time.Duration(i+1)*time.Millisecond))
	}
	c := tally.take()
	for q, want := range map[float64]time.Duration{50: 500 * time.Millisecond, 99: 990 * time.Millisecond, 100: time.Second} {
		if got := c.quantile(q); (got - want).Abs() > want/50 {
			t.Errorf("quantile %v = %v, want %v", q, got, want)
		}
	}
	if again := tally.take(); c.right() != 1000 || again.right() != 0 || again.quantile(50) != 0 {
		t.Errorf("%d and then %d were counted, want 1000 and 0", c.right(), again.right())
	}
}

// spotsWith returns spots at the first steps, with those rates of each kind.
func spotsWith(d *dimension, rates ...int64) map[point]*spot {
	spots := map[point]*spot{}
	d.steps = d.steps[:len(rates)]
	for i, rate := range rates {
		h := hdrhistogram.New(1, 10, 1)
		_ = h.RecordValues(1, rate)
		m := []mark{{counts: counts{latencies: h}, elapsed: time.Second}}
		spots[d.steps[i].point] = &spot{marks: map[string][]mark{first: m, replay: m}}
	}
	return spots
}

func TestErrorsAreShown(t *testing.T) {
	d := smallCurve().dimensions()[2]
	spots := spotsWith(&d, 1, 8, 1)
	marks := spots[d.steps[1].point].marks
	m := marks[first][0]
	m.failed, m.failure = 2, errors.New("a reason")
	marks[replay] = []mark{m}
	var out strings.Builder
	writeDimension(&out, d, spots)
	for _, want := range []string{"| 2 of 10: a reason |\n", "| 0 of 1 |\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
}

func TestPlot(t *testing.T) {
	d := smallCurve().dimensions()[2]
	file := filepath.Join(t.TempDir(), "plot.svg")
	if err := drawPlot(file, d, spotsWith(&d, 400, 30, 2)); err != nil {
		t.Fatal(err)
	}
	text := wellFormed(t, file)
	for _, label := range []string{">0 B<", ">1 MiB<", ">500<", ">2<", ">Length of the bodies<", ">replay<"} {
		if !strings.Contains(text, label) {
			t.Errorf("the label %s is missing", label)
		}
	}
}

// One point, equal values and no answers are not much of a plot, but they are drawn.
func TestDegeneratePlots(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plot.svg")
	for _, rates := range [][]int64{{5}, {0}, {0, 0}, {7, 7}} {
		d := smallCurve().dimensions()[0]
		if err := drawPlot(file, d, spotsWith(&d, rates...)); err != nil {
			t.Errorf("%v: %v", rates, err)
		}
		if text := wellFormed(t, file); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%v: %s", rates, text)
		}
	}
}

func TestRoundTicks(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		want      []string
	}{
		{1, 1, []string{"1", "2"}},
		{3, 4, []string{"2", "5"}},
		{700, 12_000, []string{"500", "1k", "2k", "5k", "10k", "20k"}},
	} {
		var got []string
		for _, tick := range roundTicks(test.low, test.high) {
			got = append(got, tick.Label)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("from %v to %v: %v, want %v", test.low, test.high, got, test.want)
		}
	}
}

// wellFormed returns the text of an XML file.
func wellFormed(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := d.Token(); err == io.EOF {
			return string(text)
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
}

func TestUnits(t *testing.T) {
	for got, want := range map[string]string{
		digits(1234 * time.Nanosecond):      "1.23µs",
		digits(99_960 * time.Nanosecond):    "100µs",
		digits(45_670 * time.Microsecond):   "45.7ms",
		digits(1500 * time.Millisecond):     "1.5s",
		digits(0):                           "0s",
		size(0) + size(1<<10) + size(1<<20): "0 B1 KiB1 MiB",
		size(1536) + size(16<<10):           "1.5 KiB16 KiB",
		short(1) + short(2500) + short(1e6): "12.5k1M",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
