package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSoak(t *testing.T) {
	redisFor(t)
	cfg := soakConfig{
		length: time.Second, every: 200 * time.Millisecond, share: 0.3, callers: 8, max: 200 * time.Millisecond,
		retention: 2 * time.Second,
	}
	var out strings.Builder
	if err := soak(t.Context(), session{out: &out, progress: t.Output()}, cfg); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"- 8 callers, bodies of 1 KiB; ", "\n| after | answers a second |", "\n| 200ms | ", "\n| 1s | ",
		"\n| first quarter | ", "\n| last quarter | ", "\n| change | ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(out.String(), "NaN") {
		t.Error("something was not measured")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// mixFor returns one with those who hold requests in flight; all that ends with the test.
func mixFor(t *testing.T, edit func(*mix)) *mix {
	t.Helper()
	m := newMix(conditionsFor(redisFor(t), 4), 2*time.Second)
	m.slow.delay = 10 * time.Millisecond
	if edit != nil {
		edit(m)
	}
	return m
}

func TestMix(t *testing.T) {
	m := mixFor(t, nil)
	t.Cleanup(func() { _ = m.close() })
	holders := m.hold(t.Context())
	if _, err := race(m.caller, 4, limit{answers: 2000}); err != nil {
		t.Error(err)
	}
	if err := m.verify(); err != nil {
		t.Error(err)
	}
	if runs := m.quick.runs.Load(); runs < 800 || runs > 1300 {
		t.Errorf("the handler ran %d times for 2000 answers, want about half as often", runs)
	}
	if m.slow.runs.Load() < heldKeys {
		t.Errorf("%d requests were in flight, want %d at a time", m.slow.runs.Load(), heldKeys)
	}
	t.Cleanup(holders.Wait) // t.Context has ended then
}

func TestBrokenMixesFail(t *testing.T) {
	t.Run("nobody protects", func(t *testing.T) {
		m := mixFor(t, func(m *mix) { m.protect = func(h http.Handler) http.Handler { return h } })
		t.Cleanup(func() { _ = m.close() })
		_, err := race(m.caller, 4, limit{answers: 2000})
		if err == nil || !strings.Contains(err.Error(), "status 201, want [422]") {
			t.Errorf("error %v", err)
		}
		if err := m.verify(); err == nil || !strings.Contains(err.Error(), "the handler ran") {
			t.Errorf("verify: %v", err)
		}
	})
	t.Run("one wrong answer", func(t *testing.T) {
		m := mixFor(t, nil)
		t.Cleanup(func() { _ = m.close() })
		m.tally.note(errors.New("a reason"), time.Now())
		w := watch{mix: m}
		if w.sample(t.Context()); w.failure == nil || w.failure.Error() != "a reason" {
			t.Errorf("failure %v, want a reason", w.failure)
		}
	})
}

// A stall is in the latencies of all that should have been asked meanwhile.
func TestPaceOmitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []time.Duration
		asked := 0
		caller := func(int) func() error {
			return func() error {
				if asked++; asked == 3 {
					time.Sleep(35 * time.Millisecond)
				}
				return nil
			}
		}
		note := func(_ error, scheduled time.Time) { got = append(got, time.Since(scheduled)) }
		ctx, cancel := context.WithTimeout(t.Context(), 75*time.Millisecond)
		defer cancel()
		pace(ctx, 1, 100, caller, note).Wait()
		want := []time.Duration{0, 0, 35, 25, 15, 5, 0, 0, 0}
		for i := range want {
			if i >= len(got) || got[i] != want[i]*time.Millisecond {
				t.Fatalf("latencies %v, want %v ms", got, want)
			}
		}
	})
}

func TestVerdict(t *testing.T) {
	var out strings.Builder
	w := watch{out: &out}
	for i := range 20 {
		s := make(sample, len(sampleColumns))
		s[0], s[8] = 100, float64(i+1)
		w.samples = append(w.samples, s)
	}
	w.verdict()
	for _, want := range []string{
		"| first quarter | 100 | ", " | 3 | 0 |\n", " | 18 | 0 |\n", "| change | 0 %, level | ", "+500.0 %, rose",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	for _, test := range []struct {
		before, after float64
		want          string
	}{
		{0, 0, "0 %, level"}, {0, 1, "+Inf %, rose"}, {100, 109, "+9.0 %, level"}, {100, 111, "+11.0 %, rose"},
		{100, 50, "-50.0 %, fell"},
	} {
		if got := change(test.before, test.after); got != test.want {
			t.Errorf("change(%v, %v) = %s, want %s", test.before, test.after, got, test.want)
		}
	}
}
