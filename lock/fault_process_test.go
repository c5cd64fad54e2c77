package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// A client is stopped for longer than its lease lasts, between its check of the lease and a write. Meanwhile another settles.
//
// fault: client SIGSTOP longer than the TTL, then SIGCONT
func TestClientIsStopped(t *testing.T) {
	t.Parallel()
	r, server := &register{}, redistest.Start(t)
	rival := newLocker(t, server.Client(t), lock.WithFencing())
	client := redistest.Run(t, "holder", server.Addr(), "2s")
	var fence int64
	if _, err := fmt.Sscan(client.Line(t), &fence); err != nil {
		t.Fatal(err)
	}
	if client.Send(t, "look"); client.Line(t) != "valid" {
		t.Error("the lease has ended before the client was stopped")
	}
	client.Pause(t)
	next, err := rival.Acquire(t.Context(), "k")
	must(t, err)
	if err := next.Settle(t.Context(), []byte("the rival's"), time.Hour); err != nil || !r.write(next.Fence(), 1) {
		t.Errorf("Settle: %v, or the rival's write is refused", err)
	}
	client.Send(t, "look")
	client.Send(t, "settle the client's")
	client.Resume(t)
	if got := client.Line(t) + " " + client.Line(t); got != "lost lost" {
		t.Errorf("on waking its lease and its Settle are %s, want lost lost", got)
	}
	if r.write(fence, 2) {
		t.Errorf("its write under %d after %d is accepted", fence, next.Fence())
	}
	if claim, err := rival.Look(t.Context(), "k"); err != nil || string(claim.Value) != "the rival's" {
		t.Errorf("in the end: %q, %v", claim.Value, err)
	}
	if err := client.Wait(t); err != nil {
		t.Error(err)
	}
	r.check(t)
}

// A process is killed while Redis stands still: nothing releases the claims in its open connections. That is the only
// way in which a key is abandoned although nothing ran. There are at most as many as connections, since a new connection
// waits for its handshake. An operator sees when they were claimed.
//
// fault: claim under a hold, process killed before its handler or before it could release it (a stall of Redis: a pool's worth at most)
func TestClientIsKilledWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	const pool = 10
	server := redistest.Start(t)
	operator := newLocker(t, server.Client(t))
	client := redistest.Run(t, "claimer", server.Addr(), fmt.Sprint(pool))
	if client.Line(t) != "connected" {
		t.Fatal("the client has not connected")
	}
	server.Pause(t)
	client.Send(t, "claim")
	if client.Line(t) != "no claim was granted" {
		t.Error("a claim was granted by a server that stands still")
	}
	client.Kill(t)
	server.Resume(t)
	var left []lock.Info
	for scanned, err := range operator.Scan(t.Context(), 1000) {
		must(t, err)
		left = append(left, scanned.Infos...)
	}
	if t.Logf("%d keys are left", len(left)); len(left) > pool {
		t.Errorf("%d keys are left, want %d at most", len(left), pool)
	}
	for _, info := range left {
		if time.Since(info.ClaimedAt) > time.Minute || info.HoldLeft != hold {
			t.Errorf("%+v", info)
		}
		if err := operator.Forget(t.Context(), info.Key, info.Token, true); err != nil {
			t.Error(err)
		}
	}
}

// claimer is a client process that connects, and claims many keys under a hold when it is told to.
func claimer(args []string, in io.Reader, out io.Writer) error {
	pool, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	ctx, client := context.Background(), redis.NewClient(&redis.Options{Addr: args[0], PoolSize: pool})
	var conns []*redis.Conn
	for range pool {
		conn := client.Conn()
		if err := conn.Ping(ctx).Err(); err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	var lockers []*lock.Locker // each sends up to four commands at the same time
	for range pool {
		lockers = append(lockers, lock.New(client, "test", lock.WithOpTimeout(500*time.Millisecond)))
	}
	fmt.Fprintln(out, "connected")
	if !bufio.NewScanner(in).Scan() {
		return io.ErrUnexpectedEOF
	}
	var all sync.WaitGroup
	var granted atomic.Int64
	for i := range 50 * pool {
		all.Go(func() {
			if _, err := lockers[i%pool].Claim(ctx, fmt.Sprint(i), nil, hold); err == nil {
				granted.Add(1)
			}
		})
	}
	all.Wait()
	if granted.Load() == 0 {
		fmt.Fprintln(out, "no claim was granted")
	}
	select {}
}

// holder is a client process that takes a key, says the fence, and does what it is told.
func holder(args []string, in io.Reader, out io.Writer) error {
	ttl, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: args[0]})
	defer client.Close()
	locker := lock.New(client, "test", lock.WithTTL(ttl), lock.WithOpTimeout(time.Minute), lock.WithFencing())
	lease, ok, err := locker.TryAcquire(context.Background(), "k")
	if err != nil || !ok {
		return fmt.Errorf("TryAcquire: %v, %w", ok, err)
	}
	fmt.Fprintln(out, lease.Fence())
	for told := bufio.NewScanner(in); told.Scan(); {
		switch word, text, _ := strings.Cut(told.Text(), " "); word {
		case "look":
			fmt.Fprintln(out, look(lease))
		case "settle":
			fmt.Fprintln(out, outcome(lease.Settle(context.Background(), []byte(text), time.Hour)))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return locker.Close(ctx)
}

// look tells whether a lease is valid, and if it is not, that its context is done at once.
func look(lease *lock.Lease) string {
	if time.Now().Before(lease.Until()) {
		return "valid"
	}
	select {
	case <-lease.Context().Done():
		return outcome(context.Cause(lease.Context()))
	case <-time.After(time.Second): // the time that a busy machine takes for at once
		return "not told"
	}
}

func outcome(err error) string {
	switch {
	case errors.Is(err, lock.ErrLost):
		return "lost"
	case err != nil:
		return err.Error()
	}
	return "settled"
}
