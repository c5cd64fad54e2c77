package run

import (
	"testing"
	"time"
)

// A clock that is set back by an hour does not keep Redis from being asked for an hour.
func TestBreakerAndTheClock(t *testing.T) {
	for ahead, want := range map[time.Duration]bool{-time.Second: false, time.Second: true, time.Hour: false} {
		var b breaker
		b.until.Store(time.Now().Add(ahead).UnixNano())
		if got := b.open(); got != want {
			t.Errorf("until %v from now: %v, want %v", ahead, got, want)
		}
	}
}
