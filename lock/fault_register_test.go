package lock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// read returns the value, to a caller that is about to change it.
func (r *register) read(fence int64) (value int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.admit(fence)
}

func (r *register) write(fence int64, value int) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.admit(fence) {
		return false
	}
	if value != r.value+1 {
		r.overlaps = append(r.overlaps, fmt.Sprintf("%d writes %d over %d", fence, value, r.value))
	}
	r.value = value
	r.writes++
	return true
}

func (r *register) admit(fence int64) bool {
	if fence < r.fence {
		r.refused++
		return false
	}
	r.fence = fence
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

// Clients that add one to the register, and the server, are stopped or killed again and again. No update is lost,
// although a client does not check its lease between the lock and the write.
//
// fault: client SIGSTOP longer than the TTL, then SIGCONT
// fault: redis-server kill -9, restarted empty
// fault: redis-server SIGSTOP, longer
func TestRegisterLosesNoUpdate(t *testing.T) {
	t.Parallel()
	r, server := &register{}, redistest.Start(t)
	addr := r.serve(t)
	var clients []*redistest.Process
	for range 3 {
		clients = append(clients, redistest.Run(t, "adder", server.Addr(), addr))
	}
	rng := rand.New(rand.NewPCG(faultSeed(t), 1))
	for range redistest.Rounds(8, 20) {
		pause := time.Duration(rng.Int64N(int64(2 * adderTTL)))
		switch n := rng.IntN(10); {
		case n < 7:
			client := clients[rng.IntN(len(clients))]
			client.Pause(t)
			time.Sleep(pause)
			client.Resume(t)
		case n < 8:
			server.Pause(t)
			time.Sleep(pause)
			server.Resume(t)
		default:
			server.Kill(t)
			server.Restart(t)
		}
		time.Sleep(pause / 2)
	}
	for _, client := range clients {
		if err := client.Wait(t); err != nil {
			t.Error(err)
		}
	}
	r.check(t)
	if r.writes < 10 {
		t.Errorf("%d writes: too few to tell anything", r.writes)
	}
	time.Sleep(adderTTL)
	wantNoClaims(t, server)
}

// serve lets client processes use the register, by lines: "read FENCE" and "write FENCE VALUE", answered with the
// value. One that is refused is hung up on.
func (r *register) serve(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.talk(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait() // the clients have gone before
	})
	return listener.Addr().String()
}

func (r *register) talk(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var what string
		var fence int64
		var value int
		_, _ = fmt.Sscan(lines.Text(), &what, &fence, &value) // a read has no value
		ok := false
		if what == "read" {
			value, ok = r.read(fence)
		} else {
			ok = r.write(fence, value)
		}
		if !ok {
			return
		}
		if _, err := fmt.Fprintln(conn, value); err != nil {
			return
		}
	}
}

const adderTTL = 300 * time.Millisecond

// adder is a client process that adds one to the register under the lock, until there is no more input.
func adder(args []string, in io.Reader, _ io.Writer) error {
	client := redis.NewClient(&redis.Options{Addr: args[0]})
	defer client.Close()
	locker := lock.New(client, "test", lock.WithTTL(adderTTL), lock.WithFencing())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	for ctx.Err() == nil {
		lease, err := locker.Acquire(ctx, "k")
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the server is away
			continue
		}
		if err := add(args[1], lease.Fence()); err != nil {
			return err
		}
		_ = lease.Release(ctx) // lost, perhaps
	}
	end, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	return locker.Close(end)
}

// add adds one to the register. That it is refused is no error.
func add(register string, fence int64) error {
	conn, err := net.Dial("tcp", register)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintln(conn, "read", fence)
	value := 0
	if _, err := fmt.Fscan(conn, &value); err != nil {
		return nil
	}
	time.Sleep(rand.N(10 * time.Millisecond))
	fmt.Fprintln(conn, "write", fence, value+1)
	_, _ = fmt.Fscan(conn, &value)
	return nil
}
