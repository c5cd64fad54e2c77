package lock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
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

// leave brings key into a state, and returns the lease of the claim that did.
func leave(t *testing.T, locker *lock.Locker, b interface {
	Elapse(testing.TB, time.Duration)
}, key string, state lock.State) *lock.Lease {
	t.Helper()
	hold := time.Duration(0)
	if state == lock.Abandoned {
		hold = time.Hour
	}
	claim, err := locker.Claim(t.Context(), key, []byte(secretNote), hold)
	if err != nil || claim.State != lock.Granted {
		t.Fatalf("%v, %v", claim.State, err)
	}
	switch state {
	case lock.Abandoned:
		b.Elapse(t, locker.TTL()+time.Minute)
	case lock.Settled:
		if err := claim.Lease.Settle(t.Context(), []byte(secretValue), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	return claim.Lease
}

// inspect looks at key, and fails the test if it has another state.
func inspect(t *testing.T, locker *lock.Locker, key string, want lock.State) lock.Info {
	t.Helper()
	info, err := locker.Inspect(t.Context(), locker.StorageKey(key))
	if err != nil || info.State != want {
		t.Fatalf("Inspect: %v, %v, want %v", info.State, err, want)
	}
	return info
}

// eachLocker runs test on each server, with and without fences. No lease is renewed.
func eachLocker(t *testing.T, test func(t *testing.T, b redistest.Backend, locker *lock.Locker)) {
	t.Helper()
	for name, opts := range map[string][]lock.Option{"plain": nil, "fenced": {lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				test(t, b, newLocker(t, b.Client(t), append(opts, lock.WithoutRenewal())...))
			})
		})
	}
}

// around reports whether got is want or a little less, because time passes on a real server.
func around(got, want time.Duration) bool { return got <= want && got > want-30*time.Second }

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
			!around(info.LeaseLeft, 10*time.Second) || info.HoldLeft != 0 || info.TTL != info.LeaseLeft {
			t.Errorf("held: %+v", info)
		}
		if info.ClaimedAt.Before(before) || info.ClaimedAt.After(time.Now()) || !info.SettledAt.IsZero() {
			t.Errorf("claimed %v, settled %v", info.ClaimedAt, info.SettledAt)
		}
		claimUnder(t, locker, "under a hold", time.Hour)
		if info = inspect(t, locker, "under a hold", lock.Held); !around(info.LeaseLeft, 10*time.Second) || info.HoldLeft != time.Hour {
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

// What is stored stays byte for byte as it is, and is not sent either.
func TestInspectTellsNoSecret(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		var received lockedBuffer
		locker := newLocker(t, b.Client(t), lock.WithoutRenewal())
		operator := newLocker(t, b.Client(t, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return recorded{conn, &received}, err
			}
		}))
		for _, state := range []lock.State{lock.Held, lock.Abandoned, lock.Settled} {
			key := state.String()
			leave(t, locker, b, key, state)
			stored, _ := b.Raw(t, locker.StorageKey(key))
			info := inspect(t, operator, key, state)
			text, err := json.Marshal(info)
			if err != nil {
				t.Fatal(err)
			}
			for _, shown := range []string{fmt.Sprintf("%+v %#v", info, info), string(text)} {
				wantNoSecret(t, shown)
			}
			if after, _ := b.Raw(t, locker.StorageKey(key)); after != stored {
				t.Errorf("%s: Inspect has made %q of %q", key, after, stored)
			}
		}
		if received := received.String(); !strings.Contains(received, claimStart) {
			t.Errorf("received %q, want a claim", received)
		}
		wantNoSecret(t, received.String())
	})
}

// recorded is a connection whose received bytes are kept.
type recorded struct {
	net.Conn
	received *lockedBuffer
}

func (c recorded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Write(p[:n])
	return n, err
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// wantNoSecret fails the test if text has any part of the note or the value that leave has stored.
func wantNoSecret(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{secretNote[:4], secretValue[:4]} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %q", secret, text)
		}
	}
}

// The forms of a key that logs and problem responses have, and texts that name none.
func TestStorageKeysOfOperators(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker, other := newLocker(t, client, lock.WithFencing()), lock.New(client, "other", lock.WithOpTimeout(20*time.Second))
		leave(t, locker, b, "k", lock.Held)
		key := locker.StorageKey("k")
		hash := key[strings.Index(key, "}")+1:]
		for _, text := range []string{
			key, hash, "urn:onceguard:key:" + hash, "URN:Onceguard:KEY:" + strings.ToUpper(hash), strings.ToUpper(hash),
		} {
			if info, err := locker.Inspect(t.Context(), text); err != nil || info.State != lock.Held || info.Key != key {
				t.Errorf("%s: %+v, %v", text, info, err)
			}
		}
		for what, text := range map[string]string{
			"nothing":           "",
			"the caller's key":  "k",
			"other namespace":   other.StorageKey("k"),
			"other tag":         strings.Replace(key, tag(key)[len(tag(key))-4:], "ffff", 1),
			"fence counter":     tag(key) + "}fence",
			"no tag":            "test:" + hash,
			"one digit less":    hash[1:],
			"one digit more":    key + "0",
			"no hex":            strings.Repeat("g", 64),
			"another URN":       "urn:onceguard:problem:" + hash,
			"nothing but a URN": "urn:onceguard:key:",
			"upper case":        tag(key) + "}" + strings.ToUpper(hash),
			"blank":             " " + key,
		} {
			_, err := locker.Inspect(t.Context(), text)
			forgotten := locker.Forget(t.Context(), text, lockToken, lock.EvenIfLive())
			settled := locker.SettleAbandoned(t.Context(), text, lockToken, mustNotSettle(t), time.Hour)
			for _, err := range []error{err, forgotten, settled} {
				if !errors.Is(err, lock.ErrNotStorageKey) {
					t.Errorf("%s: %v, want ErrNotStorageKey", what, err)
				}
				if len(text) > 3 && strings.Contains(fmt.Sprint(err), text) {
					t.Errorf("%s: the error repeats it: %v", what, err)
				}
			}
		}
		if keys := b.Keys(t); len(keys) != 2 {
			t.Errorf("keys %q, want the claim and the fence counter", keys)
		}
	})
}

// lockToken is a token that no claim has.
const lockToken = "01234567-89ab-4def-8123-456789abcdef"

func mustNotSettle(t *testing.T) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) {
		t.Error("it was asked for a value")
		return nil, nil
	}
}

func TestOperatorLeavesWhatIsForeign(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client)
		put := map[string]func(key string) error{
			"text":  func(key string) error { return client.Set(t.Context(), key, "not ours", 0).Err() },
			"empty": func(key string) error { return client.Set(t.Context(), key, "", 0).Err() },
			"list":  func(key string) error { return client.RPush(t.Context(), key, "not ours").Err() },
			"newer claim": func(key string) error {
				return client.Set(t.Context(), key, "OGc\x02"+strings.Repeat("0", 60), 0).Err()
			},
		}
		for what, put := range put {
			key := locker.StorageKey(what)
			if err := put(key); err != nil {
				t.Fatal(err)
			}
			stored := client.Dump(t.Context(), key).Val()
			_, err := locker.Inspect(t.Context(), key)
			forgotten := locker.Forget(t.Context(), key, lockToken, lock.EvenIfLive())
			value := locker.Forget(t.Context(), key, "value-"+lockToken)
			settled := locker.SettleAbandoned(t.Context(), key, lockToken, mustNotSettle(t), time.Hour)
			for _, err := range []error{err, forgotten, value, settled} {
				if !errors.Is(err, lock.ErrForeign) {
					t.Errorf("%s: %v, want ErrForeign", what, err)
				}
			}
			if after := client.Dump(t.Context(), key).Val(); after != stored {
				t.Errorf("%s: it has changed", what)
			}
		}
	})
}

func TestForget(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		for _, state := range []lock.State{lock.Abandoned, lock.Settled} {
			key := state.String()
			leave(t, locker, b, key, state)
			token := inspect(t, locker, key, state).Token
			for range 2 { // the second time nothing is left to remove
				if err := locker.Forget(t.Context(), locker.StorageKey(key), token); err != nil {
					t.Errorf("%s: %v", key, err)
				}
				inspect(t, locker, key, lock.Free)
			}
		}
	})
}

func TestForgetSparesALiveLease(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		for name, hold := range map[string]time.Duration{"without a hold": 0, "under a hold": time.Hour} {
			claimUnder(t, locker, name, hold)
			token := inspect(t, locker, name, lock.Held).Token
			if err := locker.Forget(t.Context(), locker.StorageKey(name), token); !errors.Is(err, lock.ErrLive) {
				t.Errorf("%s: %v, want ErrLive", name, err)
			}
			settle := locker.SettleAbandoned(t.Context(), locker.StorageKey(name), token, mustNotSettle(t), time.Hour)
			if !errors.Is(settle, lock.ErrLive) {
				t.Errorf("%s: %v, want ErrLive", name, settle)
			}
			inspect(t, locker, name, lock.Held)
			if err := locker.Forget(t.Context(), locker.StorageKey(name), token, lock.EvenIfLive()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			inspect(t, locker, name, lock.Free)
		}
	})
}

// Between the look and the deletion, the key came to hold something else.
func TestForgetSparesWhatCameSince(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		seen, holds lock.State
		happens     func(t *testing.T, locker *lock.Locker, lease *lock.Lease)
	}{
		"the holder settles late": {lock.Abandoned, lock.Settled, func(t *testing.T, _ *lock.Locker, lease *lock.Lease) {
			if err := lease.Settle(t.Context(), []byte(secretValue), time.Hour); err != nil {
				t.Error(err)
			}
		}},
		"another caller claims": {lock.Abandoned, lock.Held, func(t *testing.T, locker *lock.Locker, lease *lock.Lease) {
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
			acquire(t, locker, "k")
		}},
		"the value is forgotten, and another claims": {lock.Settled, lock.Held, func(t *testing.T, locker *lock.Locker, _ *lock.Lease) {
			if err := forget(t.Context(), locker, "k"); err != nil {
				t.Error(err)
			}
			acquire(t, locker, "k")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
				lease := leave(t, locker, b, "k", change.seen)
				token := inspect(t, locker, "k", change.seen).Token
				change.happens(t, locker, lease)
				stored, _ := b.Raw(t, locker.StorageKey("k"))
				for _, opts := range [][]lock.ForgetOption{nil, {lock.EvenIfLive()}} {
					err := locker.Forget(t.Context(), locker.StorageKey("k"), token, opts...)
					if !errors.Is(err, lock.ErrChanged) {
						t.Errorf("%v, want ErrChanged", err)
					}
				}
				if after, _ := b.Raw(t, locker.StorageKey("k")); after != stored {
					t.Errorf("%q, want %q", after, stored)
				}
				inspect(t, locker, "k", change.holds)
			})
		})
	}
}

// The deletion is on its way when the holder settles: Redis compares, not this process.
func TestForgetMeetsALateSettle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	holder, operator := newLocker(t, server.Client(t), lock.WithoutRenewal()), newLocker(t, proxy.Client(t))
	lease := leave(t, holder, server, "k", lock.Abandoned)
	info := inspect(t, operator, "k", lock.Abandoned)
	held := proxy.HoldRequest(redistest.Named("EVALSHA", "EVAL"))
	forgotten := make(chan error, 1)
	go func() { forgotten <- operator.Forget(t.Context(), info.Key, info.Token) }()
	held.Wait(t)
	if err := lease.Settle(t.Context(), []byte(secretValue), time.Hour); err != nil {
		t.Error(err)
	}
	held.Lift()
	if err := <-forgotten; !errors.Is(err, lock.ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
	if claim, err := operator.Claim(t.Context(), "k", nil, 0); err != nil || string(claim.Value) != secretValue {
		t.Errorf("%v %q, %v, want the value", claim.State, claim.Value, err)
	}
}

func TestSettleAbandoned(t *testing.T) {
	t.Parallel()
	eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
		lease := leave(t, locker, b, "k", lock.Abandoned)
		info := inspect(t, locker, "k", lock.Abandoned)
		settle := func(token string) error {
			return locker.SettleAbandoned(t.Context(), info.Key, token, func(note []byte) ([]byte, error) {
				return append([]byte("settled, "), note...), nil
			}, 2*time.Hour)
		}
		if err := settle(lockToken); !errors.Is(err, lock.ErrChanged) {
			t.Errorf("wrong token: %v, want ErrChanged", err)
		}
		inspect(t, locker, "k", lock.Abandoned)
		if err := settle(info.Token); err != nil {
			t.Fatal(err)
		}
		claim, err := locker.Claim(t.Context(), "k", nil, 0)
		if err != nil || claim.State != lock.Settled || string(claim.Value) != "settled, "+secretNote {
			t.Errorf("%v %q, %v, want what was settled", claim.State, claim.Value, err)
		}
		value := inspect(t, locker, "k", lock.Settled)
		if !around(value.TTL, 2*time.Hour) || value.Token == info.Token || value.Token == "value-"+info.Token {
			t.Errorf("%+v, want a token of its own", value)
		}
		if err := settle(info.Token); !errors.Is(err, lock.ErrChanged) {
			t.Errorf("a second time: %v, want ErrChanged", err)
		}
		if err := settle(value.Token); err == nil {
			t.Error("a value was settled")
		}
		for what, err := range map[string]error{
			"Settle":  lease.Settle(t.Context(), []byte("late"), time.Hour),
			"Release": lease.Release(t.Context()),
		} {
			if !errors.Is(err, lock.ErrLost) {
				t.Errorf("the holder's %s: %v, want ErrLost", what, err)
			}
		}
		if again := inspect(t, locker, "k", lock.Settled); again.Token != value.Token {
			t.Errorf("%+v, want what was settled", again)
		}
		if err := locker.Forget(t.Context(), info.Key, value.Token); err != nil {
			t.Error(err)
		}
		if err := settle(info.Token); !errors.Is(err, lock.ErrChanged) {
			t.Errorf("a free key: %v, want ErrChanged", err)
		}
		inspect(t, locker, "k", lock.Free)
	})
}

// What happens between the look at the note and the writing decides.
func TestSettleAbandonedComparesWhenItWrites(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		meanwhile func(lease *lock.Lease) error
		want      error
		leaves    lock.State
	}{
		"it is settled":  {func(l *lock.Lease) error { return l.Settle(context.Background(), nil, time.Hour) }, lock.ErrChanged, lock.Settled},
		"it is released": {func(l *lock.Lease) error { return l.Release(context.Background()) }, lock.ErrChanged, lock.Free},
		"nothing":        {func(*lock.Lease) error { return refused }, refused, lock.Abandoned},
	} {
		t.Run(name, func(t *testing.T) {
			eachLocker(t, func(t *testing.T, b redistest.Backend, locker *lock.Locker) {
				lease := leave(t, locker, b, "k", lock.Abandoned)
				err := locker.SettleAbandoned(t.Context(), locker.StorageKey("k"), lease.Token(), func([]byte) ([]byte, error) {
					return []byte("mine"), test.meanwhile(lease)
				}, time.Hour)
				if !errors.Is(err, test.want) {
					t.Errorf("%v, want %v", err, test.want)
				}
				if inspect(t, locker, "k", test.leaves).Size > valueLength && test.leaves == lock.Settled {
					t.Error("the operator's value is stored")
				}
			})
		})
	}
}

// afterFailure is a hook that calls do when a command has got no reply.
type afterFailure struct{ do func() }

func (afterFailure) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h afterFailure) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		var reply redis.Error
		if err != nil && !errors.As(err, &reply) {
			h.do()
		}
		return err
	}
}

func (afterFailure) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Those that wait in Acquire for an abandoned key get it at once, and those that wait for an answer too.
func TestOperatorWakesWaiters(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		slow := lock.WithRetry(lock.Retry{Min: time.Hour, Max: time.Hour})
		locker := newLocker(t, b.Client(t), lock.WithoutRenewal(), lock.WithTTL(time.Hour), slow)
		lease := claimUnder(t, locker, "k", time.Hour)
		waits := waitFor(t.Context(), locker, "k")
		awaitMark(t, b, locker.StorageKey("k"))
		if err := locker.Forget(t.Context(), locker.StorageKey("k"), lease.Token(), lock.EvenIfLive()); err != nil {
			t.Fatal(err)
		}
		if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
			t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
		}

		leave(t, locker, b, "k2", lock.Abandoned)
		acquired := make(chan error, 1)
		go func() {
			_, err := locker.Acquire(t.Context(), "k2")
			acquired <- err
		}()
		awaitMark(t, b, locker.StorageKey("k2"))
		settle := func([]byte) ([]byte, error) { return nil, nil }
		token := inspect(t, locker, "k2", lock.Abandoned).Token
		if err := locker.SettleAbandoned(t.Context(), locker.StorageKey("k2"), token, settle, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := <-acquired; !errors.Is(err, lock.ErrSettled) {
			t.Errorf("Acquire: %v, want ErrSettled", err)
		}
	})
}

// A server that is full still tells what it holds, and lets go of it.
func TestOperatorOnAFullServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	locker := newLocker(t, client, lock.WithoutRenewal())
	leave(t, locker, server, "k", lock.Abandoned)
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	info := inspect(t, locker, "k", lock.Abandoned)
	settle := func([]byte) ([]byte, error) { return []byte("mine"), nil }
	err := locker.SettleAbandoned(t.Context(), info.Key, info.Token, settle, time.Hour)
	if err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("settle: %v, want OOM", err)
	}
	inspect(t, locker, "k", lock.Abandoned)
	if err := locker.Forget(t.Context(), info.Key, info.Token); err != nil {
		t.Errorf("forget: %v", err)
	}
	inspect(t, locker, "k", lock.Free)
}

func TestOperatorsErrors(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client, lock.WithoutRenewal())
		leave(t, locker, b, "k", lock.Abandoned)
		info := inspect(t, locker, "k", lock.Abandoned)
		for _, token := range []string{"", "value-", "abandoned", "value-value-" + info.Token, info.Token[1:]} {
			if err := locker.Forget(t.Context(), info.Key, token); !errors.Is(err, lock.ErrChanged) {
				t.Errorf("token %q: %v, want ErrChanged", token, err)
			}
		}
		if err := locker.SettleAbandoned(t.Context(), info.Key, info.Token, mustNotSettle(t), time.Microsecond); err == nil {
			t.Error("ttl of a microsecond: no error")
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := locker.Forget(over, info.Key, info.Token); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		inspect(t, locker, "k", lock.Abandoned)

		away := newLocker(t, redistest.NewClient(t, "127.0.0.1:1", func(o *redis.Options) { o.DialerRetries = 1 }))
		if _, err := away.Inspect(t.Context(), info.Key); err == nil {
			t.Error("no server: no error")
		}
		closeWithin(t, locker)
		if _, err := locker.Inspect(t.Context(), info.Key); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if got := recovered(func() { _ = locker.Forget(t.Context(), info.Key, info.Token, nil) }); !strings.Contains(got, "option 1") {
			t.Errorf("panic %q", got)
		}
	})
}

func recovered(f func()) (panicked string) {
	defer func() { panicked = fmt.Sprint(recover()) }()
	f()
	return ""
}

// What the first release wrote can be looked at and removed too.
func TestOperatorsReadWhatTheFirstReleaseWrote(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("testdata/stored")
	if err != nil {
		t.Fatal(err)
	}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client)
		for _, entry := range entries {
			key := locker.StorageKey(entry.Name())
			if err := client.Set(t.Context(), key, storedByRelease(t, entry.Name()), time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			info, err := locker.Inspect(t.Context(), key)
			if err != nil {
				t.Errorf("%s: %v", entry.Name(), err)
			}
			if err := locker.Forget(t.Context(), key, info.Token, lock.EvenIfLive()); err != nil {
				t.Errorf("%s: %v", entry.Name(), err)
			}
			inspect(t, locker, entry.Name(), lock.Free)
		}
	})
}

// FuzzStorageKey looks at arbitrary texts. Each is refused, or names one key of the namespace, which names itself.
func FuzzStorageKey(f *testing.F) {
	client := redistest.Mini(f).Client(f)
	locker := lock.New(client, "fuzz", lock.WithOpTimeout(20*time.Second))
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
