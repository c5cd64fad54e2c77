// What the tests share, and each contender once.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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
			if callers < of.least {
				continue
			}
			c := conditionsFor(server, callers)
			c.late, c.database = of.late, d
			t.Run(fmt.Sprintf("%s/%d", of.id(), callers), func(t *testing.T) { testContender(t, of, c) })
		}
	}
}

func TestContenders(t *testing.T)     { forEach(t, comparisonSuite(), nil) }
func TestHTTPContenders(t *testing.T) { forEach(t, httpSuite(), nil) }
func TestJournalContenders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) { forEach(t, journalSuite(), d) })
}

func testContender(t *testing.T, of contender, c conditions) {
	s := subjectOf(t, of.setUp, c)
	for range 2 { // a measurement must leave nothing to the next one
		r, err := measure(t.Context(), s, c, limit{answers: 100})
		if err != nil {
			t.Fatal(err)
		}
		if got := sum(r.answers); got != 100 {
			t.Fatalf("%d answers, want 100", got)
		}
	}
}
