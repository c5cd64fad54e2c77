package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// permit lets a server's clients, Sentinel and replicas among them, use commands ("+psync") or not ("-psync").
func permit(t *testing.T, s *redistest.Server, rules ...any) {
	t.Helper()
	err := s.Client(t).Do(t.Context(), append([]any{"ACL", "SETUSER", "default"}, rules...)...).Err()
	must(t, err)
}

// A key that was granted on the old master alone is granted again on the new one, before its holder learns of the loss:
// this is the limit of a lock on one master. With WithReplicas it is not granted in the first place.
//
// fault: Sentinel failover before replication
func TestSentinelFailoverBeforeReplication(t *testing.T) {
	t.Parallel()
	const n = 10
	g := redistest.StartSentinel(t, 1)
	old := g.Master(t)
	client := g.Client(t)
	alone := newLocker(t, client, lock.WithTTL(time.Minute))
	replicated := newLocker(t, client, lock.WithTTL(time.Minute), lock.WithReplicas(1, 200*time.Millisecond))
	rival := newLocker(t, g.Client(t))

	// The replica is cut off, and the old master will not let Sentinel demote it.
	permit(t, old, "-psync", "-sync", "-slaveof", "-replicaof")
	must(t, client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
	var leases [n]*lock.Lease
	var taking sync.WaitGroup
	for i := range n {
		leases[i] = acquire(t, alone, fmt.Sprint("alone", i))
		taking.Go(func() {
			_, ok, err := replicated.TryAcquire(t.Context(), fmt.Sprint("replicated", i))
			if ok || !errors.Is(err, lock.ErrNotReplicated) {
				t.Errorf("with WithReplicas: %v, %v, want false, ErrNotReplicated", ok, err)
			}
		})
	}
	taking.Wait()
	g.Failover(t)
	double := 0
	for i := range n {
		if _, ok, err := rival.TryAcquire(t.Context(), fmt.Sprint("alone", i)); err != nil {
			t.Error(err)
		} else if ok && leases[i].Context().Err() == nil {
			double++
		}
		if _, ok, err := rival.TryAcquire(t.Context(), fmt.Sprint("replicated", i)); !ok || err != nil {
			t.Errorf("a rival of nobody: %v, %v", ok, err)
		}
	}
	t.Logf("failover before replication: without WithReplicas %d of %d keys were held twice, with it 0 of %d", double, n, n)
	if double != n {
		t.Errorf("%d of %d keys were held twice: the documented limit was not met", double, n)
	}
	permit(t, old, "+@all")
	g.WaitForDemotion(t, old)
	for _, lease := range leases { // they follow Sentinel's word, and find the rival's claims
		wantErr(t, "Extend", lease.Extend(t.Context(), time.Minute), lock.ErrLost)
		wantErr(t, "Settle", lease.Settle(t.Context(), []byte("v"), time.Hour), lock.ErrLost)
	}
}

// Claims and values that the replica had survive the failover. The old master refuses a client that bypasses Sentinel.
//
// fault: old master demoted (READONLY)
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "a failover that is over within a lease")
	g := redistest.StartSentinel(t, 1)
	old := g.Master(t)
	client, direct := g.Client(t), old.Client(t)
	follower := newLocker(t, client, acknowledged)
	left, short := newLocker(t, direct, lock.WithTTL(time.Minute)), newLocker(t, direct, lock.WithTTL(3*time.Second))
	rival := newLocker(t, g.Client(t))
	kept := acquire(t, follower, "kept")
	waits := waitFor(t.Context(), rival, "kept")
	lost, settled, released := acquire(t, short, "lost"), acquire(t, left, "settled"), acquire(t, left, "released")

	g.Failover(t)
	g.WaitForDemotion(t, old)
	until := lost.Until()
	if err := lost.Extend(t.Context(), time.Minute); !redis.HasErrorPrefix(err, "READONLY") && !errors.Is(err, lock.ErrLost) {
		t.Errorf("Extend: %v, want READONLY", err)
	}
	if err := settled.Settle(t.Context(), []byte("v"), time.Hour); !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("Settle: %v, want READONLY", err)
	}
	if err := released.Release(t.Context()); !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("Release: %v, want READONLY", err)
	}
	if _, ok, err := left.TryAcquire(t.Context(), "new"); ok || !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("TryAcquire: %v, %v, want false, READONLY", ok, err)
	}
	<-lost.Context().Done()
	wantErr(t, "cause", context.Cause(lost.Context()), lock.ErrLost)
	if got := lost.Until(); !got.Equal(until) {
		t.Errorf("the end of a lease that no master has renewed has moved by %v", got.Sub(until))
	}

	if _, ok, err := rival.TryAcquire(t.Context(), "kept"); ok || err != nil {
		t.Errorf("a rival: %v, %v, want false, nil", ok, err)
	}
	wantErr(t, "Extend by a follower", kept.Extend(t.Context(), time.Minute), nil)
	kept = resume(t, newLocker(t, g.Client(t)), "kept", kept.Token())
	wantErr(t, "Settle by a follower", kept.Settle(t.Context(), []byte("v"), time.Hour), nil)
	if waits.end(t); waits.err != nil || string(waits.claim.Value) != "v" {
		t.Errorf("Wait: %v %q, %v, want settled", waits.claim.State, waits.claim.Value, waits.err)
	}
	if stored, _ := g.Master(t).Raw(t, follower.StorageKey("kept")); !strings.HasSuffix(stored, "v") {
		t.Errorf("the new master has %q", stored)
	}
	if err := left.Close(t.Context()); !errors.Is(err, lock.ErrGivenUp) { // its client does not ask Sentinel
		t.Errorf("Close: %v, want ErrGivenUp", err)
	}
}
