package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// fault: the caller's ctx cancelled before, during, after
func TestContextIsCancelledAtAnyTime(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		locker, rng := newLocker(t, p.Client(t)), rand.New(rand.NewPCG(faultSeed(t), 2))
		p.Delay(2 * time.Millisecond)
		granted := 0
		for n := range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(6*time.Millisecond))))
			lease, ok, err := locker.TryAcquire(ctx, fmt.Sprint(n))
			switch {
			case ok:
				granted++
				<-ctx.Done()
				wantErr(t, "the caller's context ends the lease", lease.Context().Err(), nil)
				release(t, lease)
			case !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("TryAcquire: %v, %v, want true or DeadlineExceeded", ok, err)
			}
			cancel()
		}
		t.Logf("%d of 100 were granted", granted)
		closeWithin(t, locker)
		wantNoClaims(t, b)
	})
}

// fault: Release racing a renewal, many times
func TestReleaseRacingRenewalOnARealServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const ttl = 3 * time.Second
	locker, seed := newLocker(t, server.Client(t), lock.WithTTL(ttl)), faultSeed(t)
	var all sync.WaitGroup
	for n := range 50 {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		all.Go(func() {
			for range redistest.Rounds(2, 5) {
				lease := acquire(t, locker, fmt.Sprint(n))
				time.Sleep(ttl/3 - 5*time.Millisecond + time.Duration(rng.Int64N(int64(10*time.Millisecond))))
				release(t, lease)
			}
		})
	}
	all.Wait()
	wantNoClaims(t, server) // at once: no renewal brings one back, and none is left to run out
}

// The machine's clock is not set here: nobody may. But a time with a monotonic reading is compared by that alone. What
// expires a key is the server's own clock.
//
// fault: wall clock of the client moved by an hour
func TestTimesAreMonotonic(t *testing.T) {
	t.Parallel()
	lease := acquire(t, newLocker(t, redistest.Mini(t).Client(t)), "k")
	for what, do := range map[string]func() error{
		"granted":  func() error { return nil },
		"extended": func() error { return lease.Extend(t.Context(), time.Minute) },
	} {
		must(t, do())
		if until := lease.Until().String(); !strings.Contains(until, " m=") {
			t.Errorf("%s: Until is %s, without a monotonic reading", what, until)
		}
	}
}
