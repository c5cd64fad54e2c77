package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
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
		for key, test := range map[string]struct {
			state                      lock.State
			hold                       time.Duration
			leaseLeft, holdLeft, lasts time.Duration
			size                       int
		}{
			"held":         {lock.Held, 0, time.Minute, 0, time.Minute, claimLength + len(secretNote)},
			"under a hold": {lock.Held, time.Hour, time.Minute, time.Hour, time.Minute + time.Hour, claimLength},
			"abandoned":    {lock.Abandoned, 0, 0, 59 * time.Minute, 59 * time.Minute, claimLength + len(secretNote)},
			"settled":      {lock.Settled, 0, 0, 0, time.Hour, valueLength + len(secretValue)},
		} {
			lease := (*lock.Lease)(nil)
			if test.hold > 0 {
				lease = claimUnder(t, locker, key, test.hold)
			} else {
				lease = leave(t, locker, b, key, test.state)
			}
			info := inspect(t, locker, key, test.state)
			isClaim, at := test.state != lock.Settled, info.ClaimedAt
			if !isClaim {
				at = info.SettledAt
			}
			if (info.Token == lease.Token()) != isClaim || info.Token == "" || isClaim && info.Fence != lease.Fence() || info.Size != test.size ||
				!around(info.LeaseLeft, test.leaseLeft) || !around(info.HoldLeft, test.holdLeft) || !around(info.TTL, test.lasts) {
				t.Errorf("%s: %+v", key, info)
			}
			if at.Before(before) || at.After(time.Now()) || info.ClaimedAt.IsZero() == isClaim || info.SettledAt.IsZero() != isClaim {
				t.Errorf("%s: claimed %v, settled %v", key, info.ClaimedAt, info.SettledAt)
			}
		}
		if info := inspect(t, locker, "nothing", lock.Free); info != (lock.Info{Key: locker.StorageKey("nothing"), State: lock.Free}) {
			t.Errorf("%+v", info)
		}
	})
}

// What is stored stays byte for byte as it is, and the note and the value are not sent either.
func TestInspectTellsNoSecret(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker, client := newLocker(t, b.Client(t), lock.WithoutRenewal()), b.Client(t)
		var received []string
		client.AddHook(hook(func(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error {
			err := next(ctx)
			received = append(received, fmt.Sprint(cmds))
			return err
		}))
		operator := newLocker(t, client)
		for _, state := range []lock.State{lock.Held, lock.Abandoned, lock.Settled} {
			leave(t, locker, b, state.String(), state)
			stored, _ := b.Raw(t, locker.StorageKey(state.String()))
			inspect(t, operator, state.String(), state)
			if after, _ := b.Raw(t, locker.StorageKey(state.String())); after != stored {
				t.Errorf("Inspect has made %q of %q", after, stored)
			}
		}
		all := fmt.Sprint(received)
		if !strings.Contains(all, claimStart) || strings.Contains(all, "of Ann") || strings.Contains(all, "card") {
			t.Errorf("received %q, want claims without their notes and values", all)
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
	releases := func(t *testing.T, _ *lock.Locker, lease *lock.Lease) { release(t, lease) }
	// What each override leaves: the key free or settled, or what was there, live or changed.
	for name, test := range map[string]struct {
		seen                     lock.State
		hold                     time.Duration // of a claim that is held
		since                    func(*testing.T, *lock.Locker, *lock.Lease)
		forget, evenLive, settle string
	}{
		"abandoned":                     {lock.Abandoned, 0, unchanged, "free", "free", "settled"},
		"held":                          {lock.Held, 0, unchanged, "live", "free", "live"},
		"held, under a hold":            {lock.Held, time.Hour, unchanged, "live", "free", "live"},
		"settled":                       {lock.Settled, 0, unchanged, "free", "free", "changed"},
		"the holder settled":            {lock.Abandoned, 0, settles, "changed", "changed", "changed"},
		"another took an abandoned key": {lock.Abandoned, 0, another, "changed", "changed", "changed"},
		"another took a settled key":    {lock.Settled, 0, another, "changed", "changed", "changed"},
		"it is free":                    {lock.Abandoned, 0, releases, "free", "free", "changed"},
	} {
		for operation, want := range map[string]string{
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
					wantErr := map[string]error{"live": lock.ErrLive, "changed": lock.ErrChanged}[want]
					if err := overrides[operation](t.Context(), locker, info); !errors.Is(err, wantErr) {
						t.Errorf("%v, want %v", err, wantErr)
					}
					then, err := locker.Inspect(t.Context(), info.Key)
					after, _ := b.Raw(t, info.Key)
					if err != nil || wantErr == nil && then.State.String() != want || wantErr != nil && after != before {
						t.Errorf("%v %q, %v; want %s; before %q", then.State, after, err, want, before)
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
		wantErr(t, "of no storage key", locker.SettleAbandoned(t.Context(), "k", info.Token, refuse, time.Hour), lock.ErrNotStorageKey)
		wantErr(t, "without a token", locker.SettleAbandoned(t.Context(), info.Key, "no token", refuse, time.Hour), lock.ErrChanged)
		must(t, overrides["settle"](t.Context(), locker, info))
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
		must(t, err)
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
			must(t, client.Set(t.Context(), key, "not ours", 0).Err())
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
		operation := []string{"forget", "settle"}[i%2]
		if err := overrides[operation](t.Context(), operator, info); err != nil {
			t.Errorf("%s: %v", operation, err)
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
