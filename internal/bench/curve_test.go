package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

func TestParseCurve(t *testing.T) {
	args := []string{"-callers", "1,8", "-keys", "2", "-bodies", "0,9", "-pool", "7", "-svg", "d"}
	cfg, err := parseCurve(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cfg.callers, []int{1, 8}) || !slices.Equal(cfg.keys, []int{2}) ||
		!slices.Equal(cfg.bodies, []int{0, 9}) || cfg.pool != 7 || cfg.svg != "d" || cfg.flags[0] != "curve" {
		t.Errorf("got %+v", cfg)
	}
	for _, args := range [][]string{
		{"-rounds", "0"}, {"-time", "0s"}, {"-pool", "0"}, {"-callers", "0"}, {"-keys", "0"}, {"-bodies", "-1"},
		{"-bodies", "1048577"}, {"x"},
	} {
		if _, err := parseCurve(args, io.Discard); !errors.Is(err, errFlags) {
			t.Errorf("%q is taken: %v", args, err)
		}
	}
	if _, err := parseCurve([]string{"-help"}, io.Discard); err != flag.ErrHelp {
		t.Errorf("-help is %v, want ErrHelp", err)
	}
}

// smallCurve has a point in each corner.
func smallCurve() curveConfig {
	return curveConfig{
		base:    point{callers: 4, keys: 20, body: 100},
		callers: []int{1, 4}, keys: []int{1, 20}, bodies: []int{0, 100, 1 << 20},
		rounds: 2, time: 10 * time.Millisecond, pool: 3, seed: 5,
	}
}

func TestRunCurve(t *testing.T) {
	redisFor(t)
	cfg := smallCurve()
	cfg.svg = t.TempDir()
	var out strings.Builder
	if err := runCurve(t.Context(), cfg, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Redis 7.", "seed: 5", "base: 4 callers, 20 stored keys, bodies of 100 B\n",
		"### Concurrent callers: first request\n", "### Stored keys: replay\n", "### Length of the bodies: replay\n",
		"\n| 0 B, 20 keys stored | ", "\n| 1 MiB, 20 keys stored | ", "The most, ",
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
		text, err := os.ReadFile(filepath.Join(cfg.svg, name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, string(text))
	}
}

// Every point has as many keys as it says, and the dimensions share the base.
func TestDimensions(t *testing.T) {
	cfg, err := parseCurve(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	points := map[point]int{}
	for _, d := range cfg.dimensions() {
		for _, p := range d.points {
			points[p]++
			if p.body*p.keys > storedBytes && p.body != cfg.base.body {
				t.Errorf("%v take too much memory", p)
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
	s, err := openSpot(t.Context(), point{callers: 4, keys: 20, body: 100}, smallCurve(), newNames(20))
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
		if m.rate <= 0 || m.p50 <= 0 || m.p99 < m.p50 || m.failed != 0 || m.redis < 0 || m.bench < 0 || m.bench > 64 {
			t.Errorf("%s: %+v", kind, m)
		}
		if err := s.store.wantKeys(t.Context(), 20); err != nil {
			t.Errorf("after %s: %v", kind, err)
		}
	}
}

// Who does not do what is measured must not come out fast.
func TestBrokenSpotsFail(t *testing.T) {
	t.Run("replays that run again", func(t *testing.T) {
		s := spotFor(t)
		if err := s.store.clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := s.measure(t.Context(), replay, 10*time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), "ran again") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("first requests of which nothing is kept", func(t *testing.T) {
		s := spotFor(t)
		s.fresh.visitors[0] = newCall(s.fresh.service, s.fresh.body)
		_, err := s.measure(t.Context(), first, 10*time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), "were stored") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("wrong answers", func(t *testing.T) {
		s := spotFor(t)
		for i := range s.stored.visitors {
			s.stored.visitors[i] = newCall(http.NotFoundHandler(), nil)
		}
		m, err := s.measure(t.Context(), replay, 10*time.Millisecond)
		if err != nil || m.failed == 0 || m.rate != 0 || !strings.Contains(m.failure.Error(), "status 404, want 201") {
			t.Errorf("%+v, %v: want wrong answers only", m, err)
		}
	})
}

// lineOf returns spots at which first requests had those rates.
func lineOf(d dimension, rates ...float64) (line []*spot) {
	for i, rate := range rates {
		m := marks{{rate: rate, right: 1}}
		line = append(line, &spot{point: d.points[i], marks: map[string]marks{first: m, replay: m}})
	}
	return line
}

func TestBend(t *testing.T) {
	d := smallCurve().dimensions()[2]
	for _, test := range []struct {
		rates []float64
		want  string
	}{
		{[]float64{89, 100, 91}, "The most, 100 a second, is at 100 B; within 10 % of it: 100 B to 1 MiB."},
		{[]float64{10, 100, 20}, "The most, 100 a second, is at 100 B; nothing else is within 10 % of it."},
		{[]float64{100, 95, 10}, "The most, 100 a second, is at 0 B; within 10 % of it: 0 B to 100 B."},
	} {
		if got := bend(d, lineOf(d, test.rates...), first); got != test.want {
			t.Errorf("%v: %s\nwant %s", test.rates, got, test.want)
		}
	}
}

// Errors are in the table, and one of them below it.
func TestErrorsAreShown(t *testing.T) {
	d := smallCurve().dimensions()[2]
	line := lineOf(d, 1, 1, 1)
	line[1].marks[replay] = marks{{rate: 7, right: 8}, {failed: 2, failure: errors.New("a reason")}}
	var out strings.Builder
	writeDimension(&out, d, line)
	for _, want := range []string{"| 2 of 10 |\n", "\nAn error at 100 B: a reason\n", "| 0 of 1 |\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
}

func TestUnits(t *testing.T) {
	for got, want := range map[string]string{
		digits(1234 * time.Nanosecond):      "1.23 µs",
		digits(99_960 * time.Nanosecond):    "100 µs",
		digits(45_670 * time.Microsecond):   "45.7 ms",
		digits(1500 * time.Millisecond):     "1.50 s",
		digits(0):                           "0.00 µs",
		size(0) + size(1<<10) + size(1<<20): "0 B1 KiB1 MiB",
		size(1500) + size(16<<10):           "1500 B16 KiB",
		short(1) + short(2500) + short(1e6): "12.5k1M",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A response that goes out though it could not be stored looks right to who gets it.
func TestUnstoredIsAnError(t *testing.T) {
	s := spotFor(t)
	observed := middleware.Event{Outcome: middleware.NotStored, Status: http.StatusCreated, Err: errors.New("a reason")}
	s.fresh.visitors[0] = newCall(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.observe(r.Context(), observed)
		s.fresh.service.ServeHTTP(w, r)
	}), s.fresh.body)
	s.callers = 1
	m, err := s.measure(t.Context(), first, 10*time.Millisecond)
	if err != nil || m.failed == 0 || m.right != 0 || m.rate != 0 || m.failure.Error() != "not-stored: a reason" {
		t.Errorf("%+v, %v", m, err)
	}
}

// wellFormed returns the attributes of each element, by its name.
func wellFormed(t *testing.T, text string) map[string][]map[string]string {
	t.Helper()
	elements := map[string][]map[string]string{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return elements
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			attributes := map[string]string{}
			for _, a := range e.Attr {
				attributes[a.Name.Local] = a.Value
			}
			elements[e.Name.Local] = append(elements[e.Name.Local], attributes)
		}
	}
}
