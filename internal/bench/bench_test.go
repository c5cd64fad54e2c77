// What the tests share, and each contender once.

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain serves if this process is the server of openServed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// redisFor returns a server that ends with the test. Without redis-server the test is skipped, or fails if CI=true.
func redisFor(t testing.TB) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	s, err := startRedis(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.stop() })
	return s
}

// eachDatabase runs a test with each server that is installed. In CI that must be both.
func eachDatabase(t *testing.T, test func(*testing.T, *database)) {
	programs := databases()
	if len(programs) < 2 && os.Getenv("CI") == "true" {
		t.Errorf("only %q are installed", programs)
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) {
			d, err := startDatabase(t.Context(), program)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.stop(); err != nil {
					t.Errorf("stopping a server: %v", err)
				}
			})
			test(t, d)
		})
	}
}

// conditionsFor returns those of a small measurement.
func conditionsFor(s *server, callers int) conditions {
	return conditions{server: s, callers: callers, pool: callers, body: jsonOf(bodySize)}
}

// subjectOf sets a subject up that ends with the test.
func subjectOf(t testing.TB, set setUp, c conditions) *subject {
	t.Helper()
	s, err := set(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// forEach tests every contender of the suite and number of callers. d is nil if the suite needs none.
func forEach(t *testing.T, s suite, d *database) {
	server := redisFor(t)
	for _, of := range s.contenders {
		for _, callers := range []int{1, 16} {
			c := conditionsFor(server, callers)
			c.database = d
			t.Run(fmt.Sprintf("%s/%d", of.id(), callers), func(t *testing.T) { testContender(t, of, c) })
		}
	}
}

func TestContenders(t *testing.T)     { forEach(t, comparisonSuite(), nil) }
func TestHTTPContenders(t *testing.T) { forEach(t, httpSuite(""), nil) }
func TestJournalContenders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) { forEach(t, journalSuite(), d) })
}

func testContender(t *testing.T, of contender, c conditions) {
	s := subjectOf(t, of.setUp, c)
	for range 2 { // a measurement must leave nothing to the next one
		r, err := measure(t.Context(), s, c, 10*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(r.answers, 0) {
			t.Fatalf("answers %v, want some for each caller", r.answers)
		}
	}
}

// The commands write what was compared, and each comparison names contenders that exist.
func TestCommands(t *testing.T) {
	redisFor(t)
	if len(databases()) == 0 {
		t.Skip("no database server is installed")
	}
	for name, want := range map[string]string{
		"": "| acquire and release / bare |", httpCommand: "| replay / raw |", journalCommand: "| intent journal / the transaction alone |",
	} {
		var out, progress strings.Builder
		s := session{args: []string{"-rounds", "2", "-time", "5ms", "-callers", "1,16"}, out: &out, progress: &progress}
		if err := commands[name](t.Context(), s); err != nil {
			t.Fatalf("%v\n%s", err, progress.String())
		}
		for _, want := range []string{"Redis server v=", "1 caller | ", "16 callers |", want} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: the output lacks %q:\n%s", name, want, out.String())
			}
		}
	}
	for _, suite := range []suite{comparisonSuite(), httpSuite("other"), journalSuite()} {
		for _, c := range suite.comparisons {
			for _, id := range strings.Fields(c.ids) {
				if !slices.ContainsFunc(suite.contenders, func(c contender) bool { return c.id() == id }) {
					t.Errorf("%q compares %s, which does not exist", c.label, id)
				}
			}
		}
	}
}

// openHandler opens a site without middleware.
func openHandler(_ context.Context, c conditions, s *service) (*site, error) {
	return &site{newVisitor: func() visitor { return newCall(s, c.body).visit }, close: closeNothing}, nil
}

// A site or lock that does not do what is measured must not come out fast, and has no score.
func TestBrokenContendersFail(t *testing.T) {
	c := conditionsFor(redisFor(t), 8)
	mute := func(_ context.Context, _ conditions, s *service) (*site, error) {
		visit := func(string) (int, []byte, error) { return http.StatusCreated, s.body, nil }
		return &site{newVisitor: func() visitor { return visit }, close: closeNothing}, nil
	}
	idle := func(context.Context, conditions) (locker, error) {
		return locker{func(context.Context, string) error { return nil }, closeNothing}, nil
	}
	b := board{session: session{progress: t.Output()}, conditions: c}
	round := scores{}
	for want, set := range map[string]setUp{
		"the handler ran 0 times": firsts(mute),
		"0 keys in Redis":         firsts(openHandler),
		" times, want 0":          replays(openHandler),
		"counting set in Redis":   locking(idle),
	} {
		err := b.measure(t.Context(), contender{name: want, subject: subjectOf(t, set, c)}, time.Millisecond, round)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if len(round) != 0 {
		t.Errorf("scores %v, want none", round)
	}
}

// The machine was half as fast in the second round. The ratios do not show it, as that of the medians would.
func TestRatiosAreTakenWithinARoundToTheBest(t *testing.T) {
	rounds := []scores{
		{"us": 100, "a": 50, "b": 20}, {"us": 50, "a": 5, "b": 25}, {"us": 210, "a": 100, "b": 1},
	}
	var got []float64
	for _, round := range rounds {
		got = append(got, ratio(round, []string{"us", "a", "b"}))
	}
	if want := []float64{2, 2, 2.1}; !slices.Equal(got, want) {
		t.Errorf("ratios = %v, want %v", got, want)
	}
	if got, want := spreadOf([]float64{9, 8, 7, 6, 5, 4, 3, 2, 1}), (spread{3, 5, 7}); got != want {
		t.Errorf("spread %v, want %v", got, want)
	}
}
