package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// acknowledged waits for one replica for as long as a busy machine may need.
var acknowledged = lock.WithReplicas(1, 15*time.Second)

// briefly is for a replica that acknowledges nothing.
var briefly = lock.WithReplicas(1, 300*time.Millisecond)

// startReplicated starts a master with a replica, and a proxy before the master.
func startReplicated(t *testing.T) (master, replica *redistest.Server, p *redistest.Proxy) {
	t.Helper()
	master = redistest.Start(t)
	replica = redistest.StartReplica(t, master)
	return master, replica, redistest.NewProxy(t, master.Addr())
}

func TestWithReplicasPanics(t *testing.T) {
	t.Parallel()
	client := redistest.NewClient(t, "127.0.0.1:1")
	for name, configure := range map[string]func(){
		"n is 0":  func() { lock.WithReplicas(0, time.Second) },
		"n is -1": func() { lock.WithReplicas(-1, time.Second) },
		"below a millisecond": func() {
			lock.WithReplicas(1, time.Millisecond-1)
		},
		"not below the time for one operation": func() {
			lock.New(client, "test", lock.WithReplicas(1, 500*time.Millisecond))
		},
		"whatever the order": func() {
			lock.New(client, "test", lock.WithReplicas(1, time.Second), lock.WithOpTimeout(time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, "lock.WithReplicas") {
					t.Errorf("panic %q, want one that names lock.WithReplicas", got)
				}
			}()
			configure()
		})
	}
	lock.New(client, "test", lock.WithReplicas(1, 499*time.Millisecond))
	lock.New(client, "test", lock.WithReplicas(1, time.Second), lock.WithOpTimeout(2*time.Second))
}

// No operation succeeds before the replica has its write.
func TestReplicaHasWhatCounts(t *testing.T) {
	t.Parallel()
	master, replica, _ := startReplicated(t)
	locker := newLocker(t, master.Client(t), acknowledged)
	key := locker.StorageKey("k")
	load(t, locker)

	var lease *lock.Lease
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"granted", func() (err error) {
			claim, err := locker.Claim(t.Context(), "k", nil, time.Hour)
			lease = claim.Lease
			return err
		}},
		{"extended", func() error { return lease.Extend(t.Context(), time.Minute) }},
		{"settled", func() error { return lease.Settle(t.Context(), []byte("v"), time.Hour) }},
	} {
		replica.Pause(t)
		before, ttl := state(t, master, key)
		done := make(chan error, 1)
		go func() { done <- step.do() }()
		eventually(t, "the master has it", func() bool {
			now, left := state(t, master, key)
			return now != before || left > ttl
		})
		select {
		case err := <-done:
			t.Fatalf("%s, %v, though the replica stands still", step.name, err)
		case <-time.After(50 * time.Millisecond):
		}
		replica.Resume(t)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		want, _ := state(t, master, key)
		if got, _ := state(t, replica, key); got != want {
			t.Errorf("%s: the replica has %q, the master %q", step.name, got, want)
		}
	}
}

// state returns what a key holds and how long it will.
func state(t *testing.T, s *redistest.Server, key string) (value string, left time.Duration) {
	t.Helper()
	value, _ = s.Raw(t, key)
	client := s.Client(t)
	defer client.Close()
	left, err := client.PTTL(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return value, left
}

// eventually returns when f does.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fault: replica stopped, WithReplicas(1)
func TestReplicaIsStopped(t *testing.T) {
	t.Parallel()
	master, replica, _ := startReplicated(t)
	client := master.Client(t)
	locker := newLocker(t, client, briefly)
	early := newLocker(t, client, acknowledged) // grants before the fault, on the same keys
	load(t, early)
	held, err := early.Claim(t.Context(), "held", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	replica.Pause(t)

	for name, take := range map[string]func() error{
		"TryAcquire": func() error { _, _, err := locker.TryAcquire(t.Context(), "try"); return err },
		"Acquire":    func() error { _, err := locker.Acquire(t.Context(), "acquire"); return err },
		"Claim":      func() error { _, err := locker.Claim(t.Context(), "claim", nil, 0); return err },
	} {
		if err := take(); !errors.Is(err, lock.ErrNotReplicated) {
			t.Errorf("%s: %v, want ErrNotReplicated", name, err)
		}
	}
	if claim, err := locker.Claim(t.Context(), "held", nil, 0); err != nil || claim.State != lock.Held {
		t.Errorf("another's claim: %v, %v, want held", claim.State, err)
	}
	if err := held.Lease.Release(t.Context()); err != nil {
		t.Errorf("Release: %v: it waits for no replica", err)
	}
	closeWithin(t, locker)
	if keys := master.Keys(t); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// fault: replica stopped, WithReplicas(1)
func TestRenewalIsNotReplicated(t *testing.T) {
	t.Parallel()
	master, replica, _ := startReplicated(t)
	locker := newLocker(t, master.Client(t), lock.WithTTL(6*time.Second), briefly)
	lease := acquire(t, locker, "k")
	until := lease.Until()
	eventually(t, "a renewal", func() bool { return lease.Until().After(until) })
	replica.Pause(t)

	until = lease.Until()
	if err := lease.Extend(t.Context(), time.Hour); !errors.Is(err, lock.ErrNotReplicated) {
		t.Fatalf("Extend: %v, want ErrNotReplicated", err)
	}
	<-lease.Context().Done()
	ended := time.Now()
	if got := context.Cause(lease.Context()); !errors.Is(got, lock.ErrLost) {
		t.Errorf("cause %v, want ErrLost", got)
	}
	if got := lease.Until(); !got.Equal(until) {
		t.Errorf("the lease's end has moved by %v", got.Sub(until))
	}
	if late := ended.Sub(until); late < 0 || late > 5*time.Second {
		t.Errorf("it ended %v after Until", late)
	}
	if _, ok := master.Raw(t, locker.StorageKey("k")); !ok {
		t.Error("the master has let go of the key") // for which it was written for an hour
	}
}

// fault: replica stopped, WithReplicas(1)
func TestSettleIsNotReplicated(t *testing.T) {
	t.Parallel()
	master, replica, _ := startReplicated(t)
	locker := newLocker(t, master.Client(t), briefly)
	lease := acquire(t, locker, "k")
	replica.Pause(t)
	if err := lease.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, lock.ErrNotReplicated) {
		t.Errorf("Settle: %v, want ErrNotReplicated", err)
	}
	time.Sleep(100 * time.Millisecond) // for tries in the background, where the value stands already
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease is over, %v, though the replica stands still", context.Cause(lease.Context()))
	}
	replica.Resume(t)
	<-lease.Context().Done()
	if got := context.Cause(lease.Context()); got != context.Canceled {
		t.Errorf("cause %v, want %v", got, context.Canceled)
	}
	if got, _ := replica.Raw(t, locker.StorageKey("k")); !strings.HasSuffix(got, "v") {
		t.Errorf("the replica has %q", got)
	}
}

// A reply is lost, and the next try, on another connection, finds what the first one has written. A WAIT on a
// connection without a write returns at once, so the next try writes again.
//
// fault: replica stopped, WithReplicas(1)
func TestUnacknowledgedWriteIsSeenAgain(t *testing.T) {
	t.Parallel()
	take := func(locker *lock.Locker, _ *lock.Lease) error {
		_, _, err := locker.TryAcquire(context.Background(), "new")
		return err
	}
	for name, test := range map[string]struct {
		opts    []lock.Option
		command string
		do      func(*lock.Locker, *lock.Lease) error
		pending int // values that are given up at the end
	}{
		"claim":        {command: "SET", do: take},
		"fenced claim": {opts: []lock.Option{lock.WithFencing()}, command: "EVALSHA", do: take},
		"extend": {command: "EVALSHA", do: func(_ *lock.Locker, l *lock.Lease) error {
			return l.Extend(context.Background(), time.Second) // shortens nothing
		}},
		"settle": {command: "EVALSHA", pending: 1, do: func(_ *lock.Locker, l *lock.Lease) error {
			return l.Settle(context.Background(), []byte("v"), time.Hour)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, replica, p := startReplicated(t)
			load(t, newLocker(t, master.Client(t), append(test.opts, acknowledged)...))
			locker := newLocker(t, p.Client(t), append(test.opts, briefly)...)
			lease := acquire(t, locker, "k")
			until := lease.Until()
			replica.Pause(t)
			lost := p.DropReply(redistest.Nth(1, redistest.Named(test.command)))
			if err := test.do(locker, lease); !errors.Is(err, lock.ErrNotReplicated) {
				t.Errorf("%v, want ErrNotReplicated", err)
			}
			if got := lost.Hits(); got != 1 {
				t.Errorf("%d replies were lost", got)
			}
			if got := lease.Until(); !got.Equal(until) {
				t.Errorf("the lease's end has moved by %v", got.Sub(until))
			}
			closeGivingUp(t, locker, test.pending)
			if _, ok := master.Raw(t, locker.StorageKey("new")); ok {
				t.Error("a claim that was not granted is left")
			}
		})
	}
}

// calls returns how often the server has carried out a command, in scripts too.
func calls(t *testing.T, s *redistest.Server, command string) (n int) {
	t.Helper()
	stats, err := s.Client(t).Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, stat, ok := strings.Cut(stats, "cmdstat_"+command+":calls="); ok {
		_, _ = fmt.Sscanf(stat, "%d", &n)
	}
	return n
}

// Errors of WAIT itself.
func TestWaitFails(t *testing.T) {
	t.Parallel()
	master, _, _ := startReplicated(t)
	master.Since(t, "6.2", "an ACL of channels")
	admin := master.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "nowait", "on", "nopass", "~*", "&*", "+@all", "-wait").Err(); err != nil {
		t.Fatal(err)
	}
	wait := redistest.Named("WAIT")
	for name, test := range map[string]struct {
		fault  func(*redistest.Proxy) *redistest.Rule
		client func(*redis.Options)
		opts   []lock.Option
		want   error
	}{
		"is forbidden": {
			client: func(o *redis.Options) { o.Username, o.Password = "nowait", "any" },
			want:   lock.ErrNotReplicated,
		},
		"the reply is lost": {
			fault: func(p *redistest.Proxy) *redistest.Rule { return p.DropReply(wait) },
			want:  lock.ErrNotReplicated,
		},
		"the connection is cut before it": {
			fault: func(p *redistest.Proxy) *redistest.Rule { return p.CutBefore(wait) },
			// The reply to the command may be lost as well, and then nothing is known.
		},
		"the reply does not come": {
			fault:  func(p *redistest.Proxy) *redistest.Rule { return p.SwallowReply(wait) },
			client: func(o *redis.Options) { o.ReadTimeout = 5 * time.Second },
			opts:   []lock.Option{lock.WithReplicas(1, time.Second), lock.WithOpTimeout(2 * time.Second)},
			want:   context.DeadlineExceeded,
		},
		"more replicas than there are": {
			opts: []lock.Option{lock.WithReplicas(2, 30*time.Millisecond)},
			want: lock.ErrNotReplicated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, master.Addr())
			if test.client == nil {
				test.client = func(*redis.Options) {}
			}
			locker := newLocker(t, p.Client(t, test.client), append([]lock.Option{acknowledged}, test.opts...)...)
			fault := func() {}
			if test.fault != nil {
				fault = test.fault(p).Lift
			}
			_, ok, err := locker.TryAcquire(t.Context(), name)
			if ok || err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("TryAcquire: %v, %v, want false, %v", ok, err, test.want)
			}
			fault()
			closeWithin(t, locker)
			if _, ok := master.Raw(t, locker.StorageKey(name)); ok {
				t.Error("a claim that was not granted is left")
			}
		})
	}
}
