package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

// refusing is a server that answers SET with an error as long as it is told to.
type refusing struct {
	client *redis.Client
	proxy  *redistest.Proxy
	left   atomic.Int64 // how often
}

func startRefusing(t *testing.T, reply string) *refusing {
	t.Helper()
	m, r := miniredis.RunT(t), &refusing{}
	m.Server().SetPreHook(func(peer *server.Peer, command string, _ ...string) bool {
		refuses := command == "SET" && r.left.Add(-1) >= 0
		if refuses {
			peer.WriteError(reply)
		}
		return refuses
	})
	r.proxy = redistest.NewProxy(t, m.Addr())
	r.client = r.proxy.Client(t)
	return r
}

// A temporary error is retried, any other is returned. Each try sends two commands: the second one lets go-redis see
// the error.
//
// fault: LOADING, READONLY, OOM, NOAUTH
func TestErrorReplies(t *testing.T) {
	t.Parallel()
	for reply, passes := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                                   true,
		"READONLY You can't write against a read only replica.":                            true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": true,
		"CLUSTERDOWN The cluster is down":                                                  true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                          true,
		"ERR max number of clients reached":                                                true,
		"OOM command not allowed when used memory > 'maxmemory'.":                          false,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to.": false,
		"NOREPLICAS Not enough good replicas to write.":                                    false,
		"NOAUTH Authentication required.":                                                  false,
		"NOPERM this user has no permissions to run the 'set' command":                     false,
		"ERR unknown command 'set'":                                                        false,
		"WEIRD":                                                                            false,
	} {
		t.Run(strings.Fields(reply)[0]+" "+strings.Fields(reply + " x")[1], func(t *testing.T) {
			t.Parallel()
			r := startRefusing(t, reply)
			locker := newLocker(t, r.client)

			r.left.Store(4) // two tries
			_, ok, err := locker.TryAcquire(t.Context(), "k")
			switch {
			case passes && (!ok || err != nil):
				t.Errorf("for a while: %v, %v, want true, nil", ok, err)
			case !passes && (ok || !isReplyOf(err, reply)):
				t.Errorf("for a while: %v, %v, want false and what the server said", ok, err)
			}
			if want := map[bool]int64{true: -1, false: 2}[passes]; r.left.Load() != want {
				t.Errorf("after that %d more would be refused, want %d", r.left.Load(), want)
			}

			r.left.Store(1000)
			if _, ok, err := locker.TryAcquire(t.Context(), "other"); ok || !isReplyOf(err, reply) {
				t.Errorf("for ever: %v, %v, want false and what the server said", ok, err)
			}
			if n := 1000 - r.left.Load(); n > 8 {
				t.Errorf("sent %d times, want no more than four tries", n)
			}
		})
	}
}

// isReplyOf reports whether err is go-redis's error for an error that a server has sent.
func isReplyOf(err error, reply string) bool {
	var e redis.Error
	return errors.As(err, &e) && strings.Contains(e.Error(), reply)
}

// A script that the server does not know is sent with its source at once: go-redis need not see the error.
//
// fault: SCRIPT FLUSH
func TestUnknownScriptTakesOneMoreCommand(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		lease := acquire(t, newLocker(t, p.Client(t)), "k")
		p.Reset()
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if got := p.Commands(); !slices.Equal(got, []string{"EVALSHA", "EVAL"}) {
			t.Errorf("sent %q", got)
		}
	})
}

// go-redis closes each connection to a server that has become a replica.
//
// fault: READONLY
func TestReplicaIsLeft(t *testing.T) {
	t.Parallel()
	_, replica, _ := startReplicated(t)
	p := redistest.NewProxy(t, replica.Addr())
	var connections atomic.Int64
	client := p.Client(t, func(o *redis.Options) {
		o.OnConnect = func(context.Context, *redis.Conn) error { connections.Add(1); return nil }
	})
	locker := newLocker(t, client)
	if _, ok, err := locker.TryAcquire(t.Context(), "k"); ok || !redis.IsReadOnlyError(err) {
		t.Errorf("TryAcquire: %v, %v, want false, READONLY", ok, err)
	}
	if sent := int64(len(p.Commands())); sent != 8 || connections.Load() != sent/2 {
		t.Errorf("%d commands on %d connections, want 8 on 4: each try's second one ends its connection", sent, connections.Load())
	}
}

// fault: NOAUTH
func TestPasswordIsSet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := newLocker(t, server.Client(t))
	lease := acquire(t, locker, "k")
	if err := server.Client(t).ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	drop := server.Client(t, func(o *redis.Options) { o.Password = "secret" })
	if err := drop.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := locker.TryAcquire(t.Context(), "other"); ok || !redis.IsAuthError(err) {
		t.Errorf("TryAcquire: %v, %v, want false, NOAUTH", ok, err)
	}
	if err := drop.ConfigSet(t.Context(), "requirepass", "").Err(); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
}
