package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

const (
	secretNote  = "note of Ann"
	secretValue = "card 4111 1111"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		before := time.Now().Truncate(time.Millisecond)
		if info := inspect(t, locker, "nothing", lock.Free); info != (lock.Info{Key: locker.StorageKey("nothing"), State: lock.Free}) {
			t.Errorf("%+v", info)
		}
		held := leave(t, locker, b, "held", lock.Held)
		info := inspect(t, locker, "held", lock.Held)
		if info.Token != held.Token() || info.Fence != held.Fence() || info.Size != claimLength+len(secretNote) ||
			!around(info.LeaseLeft, time.Minute) || info.HoldLeft != 0 || info.TTL != info.LeaseLeft {
			t.Errorf("held: %+v", info)
		}
		if info.ClaimedAt.Before(before) || info.ClaimedAt.After(time.Now()) || !info.SettledAt.IsZero() {
			t.Errorf("claimed %v, settled %v", info.ClaimedAt, info.SettledAt)
		}
		claimUnder(t, locker, "under a hold", time.Hour)
		if info = inspect(t, locker, "under a hold", lock.Held); !around(info.LeaseLeft, time.Minute) || info.HoldLeft != time.Hour {
			t.Errorf("under a hold: %+v", info)
		}
		abandoned := leave(t, locker, b, "abandoned", lock.Abandoned)
		if info = inspect(t, locker, "abandoned", lock.Abandoned); info.Token != abandoned.Token() || info.LeaseLeft != 0 ||
			!around(info.HoldLeft, 59*time.Minute) || info.TTL != info.HoldLeft || info.ClaimedAt.IsZero() {
			t.Errorf("abandoned: %+v", info)
		}
		settled := leave(t, locker, b, "settled", lock.Settled)
		if info = inspect(t, locker, "settled", lock.Settled); info.Token == settled.Token() || info.Token == "" ||
			info.Size != valueLength+len(secretValue) || !around(info.TTL, time.Hour) || info.LeaseLeft != 0 || info.HoldLeft != 0 {
			t.Errorf("settled: %+v", info)
		}
		if info.SettledAt.Before(before) || info.SettledAt.After(time.Now()) || !info.ClaimedAt.IsZero() || info.Fence != 0 {
			t.Errorf("settled %v, claimed %v, fence %d", info.SettledAt, info.ClaimedAt, info.Fence)
		}
	})
}

// recorded is a connection whose received bytes are kept.
type recorded struct {
	net.Conn
	mu       *sync.Mutex
	received *strings.Builder
}

func (c recorded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received.Write(p[:n])
	return n, err
}

// What is stored stays byte for byte as it is, and the note and the value are not sent either.
func TestInspectTellsNoSecret(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := recorded{mu: new(sync.Mutex), received: new(strings.Builder)}
		locker := newLocker(t, b.Client(t), lock.WithoutRenewal())
		operator := newLocker(t, b.Client(t, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return recorded{conn, c.mu, c.received}, err
			}
		}))
		for _, state := range []lock.State{lock.Held, lock.Abandoned, lock.Settled} {
			key := state.String()
			leave(t, locker, b, key, state)
			stored, _ := b.Raw(t, locker.StorageKey(key))
			inspect(t, operator, key, state)
			if after, _ := b.Raw(t, locker.StorageKey(key)); after != stored {
				t.Errorf("%s: Inspect has made %q of %q", key, after, stored)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		got := c.received.String()
		if !strings.Contains(got, claimStart) || strings.Contains(got, secretNote[:4]) || strings.Contains(got, secretValue[:4]) {
			t.Errorf("received %q, want claims without their notes and values", got)
		}
	})
}

// overrides are what an operator does to what Inspect has shown.
var overrides = map[string]func(ctx context.Context, operator *lock.Locker, info lock.Info) error{
	"forget": func(ctx context.Context, operator *lock.Locker, info lock.Info) error {
		return operator.Forget(ctx, info.Key, info.Token, false)
	},
	"forget even if live": func(ctx context.Context, operator *lock.Locker, info lock.Info) error {
		return operator.Forget(ctx, info.Key, info.Token, true)
	},
	"settle": func(ctx context.Context, operator *lock.Locker, info lock.Info) error {
		value := func(note []byte) ([]byte, error) { return append([]byte("settled, "), note...), nil }
		return operator.SettleAbandoned(ctx, info.Key, info.Token, value, 2*time.Hour)
	},
}

// An override does what it says to what Inspect has shown, and nothing to what came since.
func TestOverride(t *testing.T) {
	t.Parallel()
	unchanged := func(*testing.T, *lock.Locker, *lock.Lease) {}
	settles := func(t *testing.T, _ *lock.Locker, lease *lock.Lease) {
		if err := lease.Settle(t.Context(), []byte(secretValue), time.Hour); err != nil {
			t.Error(err)
		}
	}
	another := func(t *testing.T, locker *lock.Locker, _ *lock.Lease) {
		if err := forget(t.Context(), locker, "k"); err != nil {
			t.Error(err)
		}
		acquire(t, locker, "k")
	}
	type result struct {
		err  error
		then lock.State // what the key holds
	}
	removed, live := result{nil, lock.Free}, result{lock.ErrLive, lock.Held}
	for name, test := range map[string]struct {
		seen                     lock.State
		hold                     time.Duration // of a claim that is held
		since                    func(*testing.T, *lock.Locker, *lock.Lease)
		forget, evenLive, settle result
	}{
		"abandoned":          {lock.Abandoned, 0, unchanged, removed, removed, result{nil, lock.Settled}},
		"held":               {lock.Held, 0, unchanged, live, removed, live},
		"held, under a hold": {lock.Held, time.Hour, unchanged, live, removed, live},
		"settled":            {lock.Settled, 0, unchanged, removed, removed, result{lock.ErrChanged, lock.Settled}},
		"the holder settled": {
			lock.Abandoned, 0, settles, result{lock.ErrChanged, lock.Settled}, result{lock.ErrChanged, lock.Settled},
			result{lock.ErrChanged, lock.Settled},
		},
		"another took an abandoned key": {
			lock.Abandoned, 0, another, result{lock.ErrChanged, lock.Held}, result{lock.ErrChanged, lock.Held},
			result{lock.ErrChanged, lock.Held},
		},
		"another took a settled key": {
			lock.Settled, 0, another, result{lock.ErrChanged, lock.Held}, result{lock.ErrChanged, lock.Held},
			result{lock.ErrChanged, lock.Held},
		},
		"it is free": {
			lock.Abandoned, 0, func(t *testing.T, _ *lock.Locker, lease *lock.Lease) { release(t, lease) },
			removed, removed, result{lock.ErrChanged, lock.Free},
		},
	} {
		for operation, want := range map[string]result{
			"forget": test.forget, "forget even if live": test.evenLive, "settle": test.settle,
		} {
			t.Run(name+", "+operation, func(t *testing.T) {
				eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
					lease := (*lock.Lease)(nil)
					if test.hold > 0 {
						lease = claimUnder(t, locker, "k", test.hold)
					} else {
						lease = leave(t, locker, b, "k", test.seen)
					}
					info := inspect(t, locker, "k", test.seen)
					test.since(t, locker, lease)
					before, _ := b.Raw(t, info.Key)
					if err := overrides[operation](t.Context(), locker, info); !errors.Is(err, want.err) {
						t.Errorf("%v, want %v", err, want.err)
					}
					inspect(t, locker, "k", want.then)
					if after, _ := b.Raw(t, info.Key); want.err != nil && after != before {
						t.Errorf("%q, want %q", after, before)
					}
				})
			})
		}
	}
}

// The value that an operator stores is made of the note. It is not that of the holder, whose late calls change nothing.
func TestSettleAbandoned(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		lease := leave(t, locker, b, "k", lock.Abandoned)
		info, refused := inspect(t, locker, "k", lock.Abandoned), errors.New("refused")
		refuse := func([]byte) ([]byte, error) { return []byte("mine"), refused }
		if err := locker.SettleAbandoned(t.Context(), info.Key, info.Token, refuse, time.Hour); err != refused {
			t.Errorf("%v, want the error of settle", err)
		}
		if err := locker.SettleAbandoned(t.Context(), info.Key, info.Token, refuse, time.Microsecond); err == nil || err == refused {
			t.Errorf("for a microsecond: %v", err)
		}
		if err := locker.SettleAbandoned(t.Context(), "k", info.Token, refuse, time.Hour); !errors.Is(err, lock.ErrNotStorageKey) {
			t.Errorf("of no storage key: %v, want ErrNotStorageKey", err)
		}
		if err := locker.SettleAbandoned(t.Context(), info.Key, "no token", refuse, time.Hour); !errors.Is(err, lock.ErrChanged) {
			t.Errorf("without a token: %v, want ErrChanged", err)
		}
		if err := overrides["settle"](t.Context(), locker, info); err != nil {
			t.Fatal(err)
		}
		value := inspect(t, locker, "k", lock.Settled)
		if !around(value.TTL, 2*time.Hour) || value.Token == info.Token || value.Token == "value-"+info.Token {
			t.Errorf("%+v, want a token of its own", value)
		}
		for what, err := range map[string]error{
			"Settle":  lease.Settle(t.Context(), []byte("late"), time.Hour),
			"Release": lease.Release(t.Context()),
		} {
			if !errors.Is(err, lock.ErrLost) {
				t.Errorf("the holder's %s: %v, want ErrLost", what, err)
			}
		}
		claim, err := locker.Claim(t.Context(), "k", nil, 0)
		if err != nil || claim.State != lock.Settled || string(claim.Value) != "settled, "+secretNote {
			t.Errorf("%v %q, %v, want what was settled", claim.State, claim.Value, err)
		}
		stored, err := locker.LookStored(t.Context(), "urn:onceguard:key:"+info.Key[len(info.Key)-64:])
		if err != nil || string(stored.Value) != string(claim.Value) {
			t.Errorf("LookStored: %q, %v", stored.Value, err)
		}
	})
}

// fault: an operator's Forget, Replace, Settle or Resolve arrives late
//
// Its commands get no reply, and are executed when the time for the operation is over by the server's clock.
func TestOverrideArrivesLate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		override string
		state    lock.State
	}{
		"forget":              {"forget", lock.Abandoned},
		"forget even if live": {"forget even if live", lock.Abandoned},
		"settle":              {"settle", lock.Abandoned},
		"forget a value":      {"forget", lock.Settled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = time.Second
			server := redistest.Start(t)
			p := redistest.NewProxy(t, server.Addr())
			holder := newLocker(t, server.Client(t), lock.WithoutRenewal(), lock.WithTTL(time.Minute))
			operator := newLocker(t, p.Client(t), lock.WithOpTimeout(limit))
			load(t, holder)
			leave(t, holder, server, "k", test.state)
			info := inspect(t, holder, "k", test.state)
			held := p.HoldRequest(func(c redistest.Command) bool { return len(c.Args) > 4 && strings.HasPrefix(string(c.Args[3]), "OG") })
			if err := overrides[test.override](t.Context(), operator, info); err == nil {
				t.Fatal("no error")
			}
			client := server.Client(t)
			now := func() time.Time { return client.Time(t.Context()).Val() }
			until := now().Add(limit + 10*time.Millisecond)
			eventually(t, "the time for one operation is over", func() bool { return now().After(until) })
			before, _ := executed(t, server)
			n := held.Hits()
			held.Lift()
			eventually(t, "the commands are executed", func() bool { scripts, _ := executed(t, server); return scripts >= before+n })
			if got := inspect(t, holder, "k", test.state); got.Token != info.Token {
				t.Errorf("the key has %s, want %s", got.Token, info.Token)
			}
		})
	}
}

// scanned returns the state of every key that a scan finds, the foreign ones as 0.
func scanned(t *testing.T, locker *lock.Locker, count int) (states map[string]lock.State, steps int) {
	t.Helper()
	states = map[string]lock.State{}
	for found, err := range locker.Scan(t.Context(), count) {
		if err != nil {
			t.Fatal(err)
		}
		steps++
		for _, info := range found.Infos {
			if info.Token == "" || info.Size == 0 {
				t.Errorf("%+v", info)
			}
			states[info.Key] = info.State
		}
		for _, key := range found.Foreign {
			states[key] = 0
		}
	}
	return states, steps
}

func TestScan(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		const odd = `odd*?[a-z]\ namespace`
		opts := []lock.Option{lock.WithFencing(), lock.WithoutRenewal(), lock.WithOpTimeout(time.Minute)}
		dies, locker := lock.New(client, odd, opts...), lock.New(client, odd, append(opts, lock.WithTTL(time.Minute))...)
		defer closeWithin(t, dies)
		defer closeWithin(t, locker)
		similar, want := newLocker(t, client), map[string]lock.State{}
		for i := range 90 {
			key, state := fmt.Sprint("key ", i), []lock.State{lock.Abandoned, lock.Held, lock.Settled}[i/30]
			leave(t, []*lock.Locker{dies, locker, locker}[i/30], b, key, state)
			want[locker.StorageKey(key)] = state
			leave(t, similar, b, key, lock.Settled)
		}
		foreign := locker.StorageKey("foreign")
		want[foreign] = 0
		for _, key := range []string{foreign, odd + ":{0000}" + strings.Repeat("a", 64), "oddXYa: x"} {
			if err := client.Set(t.Context(), key, "not ours", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, count := range []int{7, 1000} {
			if got, _ := scanned(t, locker, count); !maps.Equal(got, want) {
				t.Errorf("count %d: found %d keys, want %d", count, len(got), len(want))
			}
		}
	})
}

// Nothing is sent before the loop asks for the next step, nor after it was left. The first error is the last step.
func TestScanIsPacedByItsLoop(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr())
	locker := newLocker(t, p.Client(t), lock.WithoutRenewal())
	for i := range 100 {
		acquire(t, locker, fmt.Sprint(i))
	}
	sent, steps := func() int { return strings.Count(fmt.Sprint(p.Commands()), "SCAN") }, 0
	for _, err := range locker.Scan(t.Context(), 5) {
		if steps++; err != nil || sent() != steps {
			t.Fatalf("%d SCANs at step %d: %v", sent(), steps, err)
		}
		if steps == 3 {
			break
		}
	}
	if sent() != 3 {
		t.Errorf("%d SCANs after the loop", sent())
	}
	away := newLocker(t, redistest.NewClient(t, "127.0.0.1:1", redistest.OneTry))
	for found, err := range away.Scan(t.Context(), 5) {
		if steps++; err == nil || len(found.Infos) > 0 {
			t.Errorf("%+v, %v, want an error", found, err)
		}
	}
	if steps != 4 {
		t.Errorf("%d steps with the error, want one", steps-3)
	}
}

// An operator's calls on keys of every master. See TestCluster.
func testClusterOperator(t *testing.T, c *redistest.Cluster) {
	holder := lock.New(c.Client(t), "operated", lock.WithFencing(), lock.WithoutRenewal(), lock.WithTTL(time.Second),
		lock.WithOpTimeout(time.Minute))
	operator := lock.New(c.Client(t), "operated", lock.WithOpTimeout(time.Minute))
	defer closeWithin(t, holder)
	defer closeWithin(t, operator)
	var keys []string
	for i, s := range c.Servers()[:3] {
		for _, key := range siblings(holder, keyOn(t, c, s, fmt.Sprint("operated ", i)), 5) {
			claimUnder(t, holder, key, time.Hour)
			keys = append(keys, holder.StorageKey(key))
		}
	}
	slices.Sort(keys)
	eventually(t, "all are abandoned", func() bool {
		states, _ := scanned(t, operator, 100)
		if found := slices.Sorted(maps.Keys(states)); !slices.Equal(found, keys) {
			t.Fatalf("found %d keys, want %d", len(found), len(keys))
		}
		return !slices.Contains(slices.Collect(maps.Values(states)), lock.Held)
	})
	for i, key := range keys {
		info, err := operator.Inspect(t.Context(), key)
		if err != nil || info.State != lock.Abandoned || info.Fence == 0 {
			t.Fatalf("%+v, %v", info, err)
		}
		operation, want := "forget", lock.Free
		if i%2 == 0 {
			operation, want = "settle", lock.Settled
		}
		if err := overrides[operation](t.Context(), operator, info); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
		if info, err = operator.Inspect(t.Context(), key); err != nil || info.State != want {
			t.Errorf("%s: %+v, %v, want %v", operation, info, err, want)
		}
	}
}

// FuzzStorageKey looks at arbitrary texts. Each is refused, or names one key of the namespace, which names itself.
func FuzzStorageKey(f *testing.F) {
	client := redistest.Mini(f).Client(f)
	locker := lock.New(client, "fuzz", lock.WithOpTimeout(time.Minute))
	f.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			f.Error(err)
		}
	})
	key := locker.StorageKey("k")
	hash := key[strings.Index(key, "}")+1:]
	for _, text := range []string{
		key, hash, "urn:onceguard:key:" + hash, strings.ToUpper(hash), "fuzz:{0000}fence", "fuzz:{", "}" + hash, "",
	} {
		f.Add(text)
	}
	pattern := regexp.MustCompile(`^fuzz:\{[0-9a-f]{4}\}[0-9a-f]{64}$`)
	f.Fuzz(func(t *testing.T, text string) {
		info, err := locker.Inspect(t.Context(), text)
		if errors.Is(err, lock.ErrNotStorageKey) {
			return
		}
		if err != nil || !pattern.MatchString(info.Key) || !strings.HasSuffix(strings.ToLower(text), info.Key[len(info.Key)-64:]) {
			t.Fatalf("%q: %+v, %v", text, info, err)
		}
		if again, err := locker.Inspect(t.Context(), info.Key); err != nil || again.Key != info.Key {
			t.Errorf("%q: %+v, %v", info.Key, again, err)
		}
	})
}
