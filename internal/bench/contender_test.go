package main

import (
	"fmt"
	"testing"
)

// conditionsFor returns those of a small measurement.
func conditionsFor(t testing.TB, addr string, callers int, http bool) conditions {
	c := conditions{addr: addr, store: newStore(addr), callers: callers, pool: callers, body: jsonOf(bodySize), http: http}
	t.Cleanup(func() { _ = c.store.client.Close() })
	return c
}

// setUp returns the contender's subject, which ends with the test.
func setUp(t testing.TB, of contender, c conditions) subject {
	t.Helper()
	s, err := of.setUp(t.Context(), c)
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

// forEach runs f for every contender, way and number of callers.
func forEach[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, f func(T, contender, conditions)) {
	addr := redisFor(t).addr
	for way, http := range map[string]bool{"call": false, "http": true} {
		for _, of := range contenders(http) {
			for _, callers := range []int{1, 16} {
				if callers < of.least {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", way, of.id(), callers), func(t T) {
					f(t, of, conditionsFor(t, addr, callers, http))
				})
			}
		}
	}
}

func TestContenders(t *testing.T) {
	forEach(t, func(t *testing.T, of contender, c conditions) {
		s := setUp(t, of, c)
		for range 2 { // one measurement must leave nothing to the next
			r, err := measure(t.Context(), s, c, forCount(100))
			if err != nil {
				t.Fatal(err)
			}
			if r.total() != 100 {
				t.Fatalf("%d answers, want 100", r.total())
			}
		}
	})
}

// BenchmarkContenders is for CI: once, and for its errors.
func BenchmarkContenders(b *testing.B) {
	forEach(b, func(b *testing.B, of contender, c conditions) {
		s := setUp(b, of, c)
		b.ReportAllocs()
		r, err := measure(b.Context(), s, c, forCount(b.N))
		if err != nil {
			b.Fatal(err)
		}
		// Of the race alone, not of what is before and after.
		n := float64(b.N)
		b.ReportMetric(float64(r.elapsed.Nanoseconds())/n, "ns/op")
		b.ReportMetric(float64(r.allocs)/n, "allocs/op")
		b.ReportMetric(float64(r.bytes)/n, "B/op")
	})
}
