package lock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// The bounds of batches, as internal/pipeline/pacer.go has them.
const (
	maxInFlight = 8 // commands that go alone, after which others wait
)

// unhurried lets a test hold batches for as long as it takes: after a tenth of the time for one operation they do not
// count any more. No claim is granted too late then, and no renewal is among the commands that a test counts.
var unhurried = []lock.Option{lock.WithOpTimeout(time.Hour), lock.WithTTL(2 * time.Hour)}

// names returns n keys that begin with prefix.
func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

// callers are goroutines that were started together.
type callers struct{ done []chan error }

// start calls do for each of n, one after the other when a command of the one before is queued or sent, or the call has
// returned. Nothing else may use the locker meanwhile. If a call is canceled meanwhile, start may be too early by one.
func start(t *testing.T, locker *lock.Locker, n int, do func(i int) error) *callers {
	t.Helper()
	c := &callers{}
	for i := range n {
		before, done := submitted(locker), make(chan error, 1)
		c.done = append(c.done, done)
		go func() { done <- do(i) }()
		for deadline := time.Now().Add(time.Minute); len(done) == 0 && submitted(locker) == before; {
			if time.Now().After(deadline) {
				t.Fatalf("call %d does not wait for an answer", i)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	return c
}

// submitted returns how many commands the locker has queued or sent, so far.
func submitted(locker *lock.Locker) uint64 {
	s := locker.Stats()
	return s.Commands + uint64(s.Queued)
}

// wait returns what the i-th call has.
func (c *callers) wait(t *testing.T, i int) error {
	t.Helper()
	select {
	case err := <-c.done[i]:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("call %d has not returned within a minute", i)
		return nil
	}
}

// succeed waits for all.
func (c *callers) succeed(t *testing.T, what string) {
	t.Helper()
	for i := range c.done {
		if err := c.wait(t, i); err != nil {
			t.Errorf("%s %d: %v", what, i, err)
		}
	}
}

// leases are those that calls to TryAcquire have returned.
type leases struct {
	*callers
	of []*lock.Lease
}

// errHeld says that TryAcquire has returned false.
var errHeld = errors.New("held")

// tryAll takes keys in calls of their own.
func tryAll(t *testing.T, locker *lock.Locker, keys []string) *leases {
	t.Helper()
	l := &leases{of: make([]*lock.Lease, len(keys))}
	l.callers = start(t, locker, len(keys), func(i int) error {
		lease, ok, err := locker.TryAcquire(t.Context(), keys[i])
		if err == nil && !ok {
			err = errHeld
		}
		l.of[i] = lease
		return err
	})
	return l
}

// isOurs tells whether a command is not one of go-redis, which sets up a connection.
func isOurs(cmd redis.Cmder) bool {
	return cmd.Name() == "set" || strings.HasPrefix(cmd.Name(), "eval")
}
