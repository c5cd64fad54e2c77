package middleware_test

import (
	"math"
	"testing"
)

// allocations returns how often f allocates, in the long run.
func allocations(f func()) int {
	const each = 100
	n := testing.AllocsPerRun(20, func() {
		for range each {
			f()
		}
	})
	return int(math.Round(n / each))
}

// The allocations of the middleware for one request: all of them, less those of the locker's calls and
// of the handler. If there are more than the limit, every request has a new allocation; to find it:
//
//	go test -run '^$' -bench Overhead/first/1 -memprofile m -memprofilerate 1 ./middleware
//	go tool pprof -sample_index=alloc_objects -top middleware.test m
//
// If there are fewer, lower the limit.
func TestAllocations(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates too")
	}
	for _, test := range []struct {
		state string
		limit int
	}{
		{"first", 5},      // the key, the exchange, its handled, the request, the key for the checksum
		{"replay", 7},     // the key, the exchange, the checksum's key, a text, its values, two fields, a number
		{"in flight", 15}, // the key, the exchange, the problem's header and body
		{"mismatch", 17},  // the same, the key for the checksum, what was read of the record, and a time with its text
	} {
		for _, size := range []int{1 << 10, 64 << 10} {
			c := newCounter(t, size)
			c.prepare(t, test.state)
			got := allocations(func() { c.serve(c.protected) }) - allocations(func() { c.serveByLocker(t) })
			if test.state == "first" {
				got -= allocations(func() { c.serve(c.bare) })
			}
			if got != test.limit {
				t.Errorf("%s, %d bytes: %d allocations, want %d", test.state, size, got, test.limit)
			}
		}
	}
}
