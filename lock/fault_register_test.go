package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// register is what a lock guards. It keeps the greatest fence that it has seen and refuses a smaller one. It records two
// holders at a time, and an update that overwrites one that its writer had not read.
type register struct {
	mu       sync.Mutex
	fence    int64
	value    int
	writes   int
	refused  int
	inside   []*lock.Lease
	overlaps []string
}

// enter lets the holder of a lease in. Until is what counts: on a busy machine a context is over a moment later.
func (r *register) enter(lease *lock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.inside {
		if time.Now().Before(other.Until()) {
			r.overlaps = append(r.overlaps, fmt.Sprintf("%d is inside for %v more when %d comes",
				other.Fence(), time.Until(other.Until()), lease.Fence()))
		}
	}
	r.inside = append(r.inside, lease)
}

func (r *register) write(fence int64, value int) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fence < r.fence {
		r.refused++
		return false
	}
	r.fence = fence
	if value != r.value+1 {
		r.overlaps = append(r.overlaps, fmt.Sprintf("%d writes %d over %d", fence, value, r.value))
	}
	r.value = value
	r.writes++
	return true
}

func (r *register) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("%d writes, %d refused", r.writes, r.refused)
	for _, overlap := range r.overlaps {
		t.Error(overlap)
	}
}

// A holder that gets no replies any more stops before the server grants its key to another.
//
// fault: black hole, no RST
func TestBlackHoleNeverOverlaps(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	locker := newLocker(t, proxy.Client(t, redistest.OneTry), lock.WithTTL(ttl), lock.WithFencing())
	rival := newLocker(t, server.Client(t), lock.WithFencing(),
		lock.WithRetry(lock.Retry{Min: time.Millisecond, Max: 2 * time.Millisecond}))

	registers := make([]register, 8)
	leases := make([]*lock.Lease, len(registers))
	for i := range registers { // some are renewed before the hole, some are not
		leases[i] = acquire(t, locker, fmt.Sprint(i))
		registers[i].enter(leases[i])
		time.Sleep(ttl / 16)
	}
	proxy.BlackHole()
	var rivals sync.WaitGroup
	for i := range registers {
		rivals.Go(func() {
			lease, err := rival.Acquire(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Error(err)
				return
			}
			registers[i].enter(lease)
			<-leases[i].Context().Done()
			if cause := context.Cause(leases[i].Context()); cause != lock.ErrLost {
				t.Errorf("the context of the first holder has ended with %v, want ErrLost", cause)
			}
			if !registers[i].write(lease.Fence(), 1) || registers[i].write(leases[i].Fence(), 2) {
				t.Error("the second holder's write is refused, or the first one's is not")
			}
			release(t, lease)
		})
	}
	rivals.Wait()
	proxy.Heal()
	closeWithin(t, locker)
	for i := range registers {
		registers[i].check(t)
	}
	wantNoClaims(t, server)
}

// wantNoClaims checks that the server holds nothing but fence counters.
func wantNoClaims(t *testing.T, b redistest.Backend) {
	t.Helper()
	for _, key := range b.Keys(t) {
		if !isFence(key) {
			value, _ := b.Raw(t, key)
			t.Errorf("left: %s: %q", key, value)
		}
	}
}

func isFence(key string) bool { return len(key) < 20 && key[len(key)-len("fence"):] == "fence" }
