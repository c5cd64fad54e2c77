// What the tests share, and each contender once.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/onceguard/onceguard/internal/pgtest"
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

// postgresFor returns a server that ends with the test. Without PostgreSQL the test is skipped, or fails if CI=true.
func postgresFor(t testing.TB) *postgres {
	t.Helper()
	if _, err := pgtest.Find(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	p, err := startPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("stopping PostgreSQL: %v", err)
		}
	})
	return p
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

// forEach tests every contender of the suite and number of callers. pg is nil if the suite needs none.
func forEach(t *testing.T, s suite, pg *postgres) {
	server := redisFor(t)
	for _, of := range s.contenders {
		for _, callers := range []int{1, 16} {
			if callers < of.least {
				continue
			}
			c := conditionsFor(server, callers)
			c.late, c.postgres = of.late, pg
			t.Run(fmt.Sprintf("%s/%d", of.id(), callers), func(t *testing.T) { testContender(t, of, c) })
		}
	}
}

func TestContenders(t *testing.T)        { forEach(t, comparisonSuite(), nil) }
func TestHTTPContenders(t *testing.T)    { forEach(t, httpSuite(), nil) }
func TestJournalContenders(t *testing.T) { forEach(t, journalSuite(), postgresFor(t)) }

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
