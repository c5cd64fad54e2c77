package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// An operator's overrides of a claim.
var claimOverrides = map[string]func(ctx context.Context, operator *lock.Locker, info lock.Info) error{
	"forget": func(ctx context.Context, operator *lock.Locker, info lock.Info) error {
		return operator.Forget(ctx, info.Key, info.Token)
	},
	"forget even if live": func(ctx context.Context, operator *lock.Locker, info lock.Info) error {
		return operator.Forget(ctx, info.Key, info.Token, lock.EvenIfLive())
	},
	"settle": func(ctx context.Context, operator *lock.Locker, info lock.Info) error {
		value := func([]byte) ([]byte, error) { return []byte("operator's"), nil }
		return operator.SettleAbandoned(ctx, info.Key, info.Token, value, time.Hour)
	},
}

// lateOverride is a server with a proxy before the operator's client, which holds commands on a key.
type lateOverride struct {
	*testing.T
	server           *redistest.Server
	proxy            *redistest.Proxy
	client           *redis.Client
	holder, operator *lock.Locker
}

func newLateOverride(t *testing.T, opTimeout time.Duration) *lateOverride {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := proxy.Client(t, func(o *redis.Options) { o.ReadTimeout = opTimeout / 10 })
	l := &lateOverride{
		T: t, server: server, proxy: proxy, client: client,
		holder:   newLocker(t, server.Client(t), lock.WithoutRenewal(), lock.WithTTL(time.Minute)),
		operator: newLocker(t, client, lock.WithOpTimeout(opTimeout)),
	}
	for name, do := range claimOverrides { // the server learns the scripts
		leave(t, l.holder, server, name, lock.Abandoned)
		if err := do(t.Context(), l.holder, inspect(t, l.holder, name, lock.Abandoned)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// calls returns how many scripts the server has run.
func (l *lateOverride) calls() (n int) {
	stats, err := l.server.Client(l.T).Info(l.Context(), "commandstats").Result()
	if err != nil {
		l.Fatal(err)
	}
	_, stats, _ = strings.Cut(stats, "cmdstat_evalsha:calls=")
	for _, digit := range stats {
		if digit < '0' || digit > '9' {
			break
		}
		n = 10*n + int(digit-'0')
	}
	return n
}

// elapseOperation waits until the time for an operation that has begun is over by the server's clock.
func (l *lateOverride) elapseOperation(opTimeout time.Duration) {
	client := l.server.Client(l.T)
	now := func() time.Time {
		now, err := client.Time(l.Context()).Result()
		if err != nil {
			l.Fatal(err)
		}
		return now
	}
	until := now().Add(opTimeout + 10*time.Millisecond)
	eventually(l.T, "the time for one operation is over", func() bool { return now().After(until) })
}

// lift lets the held commands go, and waits until the server has executed them.
func (l *lateOverride) lift(held *redistest.Rule) {
	before, n := l.calls(), held.Hits()
	held.Lift()
	eventually(l.T, "the held commands are executed", func() bool { return l.calls() >= before+n })
}

// isOverride matches a command that could change the claim of a key.
func isOverride(c redistest.Command) bool {
	return len(c.Args) > 4 && strings.HasPrefix(string(c.Args[3]), claimStart)
}

// fault: a Forget is refused because the lease has not run out, and its first command, whose reply did not arrive, is
// executed after the lease. Expected: that was its look. The error says that nothing was changed, and nothing is later.
// (SettleAbandoned reads the claim before.)
func TestRefusedForgetIsLate(t *testing.T) {
	t.Parallel()
	l := newLateOverride(t, 20*time.Second)
	if claim, err := l.holder.Claim(t.Context(), "k", []byte("note"), time.Hour); err != nil || claim.State != lock.Granted {
		t.Fatalf("%v, %v", claim.State, err)
	}
	info := inspect(t, l.holder, "k", lock.Held)
	held := l.proxy.HoldRequest(redistest.Nth(1, redistest.Named("EVALSHA")))
	sent := l.proxy.HoldRequest(redistest.Nth(1, isOverride))
	if err := claimOverrides["forget"](t.Context(), l.operator, info); !errors.Is(err, lock.ErrLive) {
		t.Fatalf("%v, want ErrLive", err)
	}
	if sent.Hits() > 0 {
		t.Error("a command was sent that could have removed the claim")
	}
	l.server.Elapse(t, 2*time.Minute)
	l.lift(held)
	if got := inspect(t, l.holder, "k", lock.Abandoned); got.Token != info.Token {
		t.Errorf("the key has the claim %s, want %s", got.Token, info.Token)
	}
}

// fault: the holder of an abandoned claim resumes while the first command of an override has no reply. Expected: the
// error does not say that nothing was changed, and the command has no effect once the time for one operation is over.
func TestOverrideIsLateAfterARenewal(t *testing.T) {
	t.Parallel()
	for name, do := range claimOverrides {
		if name == "forget even if live" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const opTimeout = 5 * time.Second
			l := newLateOverride(t, opTimeout)
			lease := leave(t, l.holder, l.server, "k", lock.Abandoned)
			info := inspect(t, l.holder, "k", lock.Abandoned)
			held := l.proxy.HoldRequest(redistest.Nth(1, isOverride))
			l.client.AddHook(afterFailure{func() {
				if held.Hits() == 0 {
					return
				}
				if err := lease.Extend(context.Background(), time.Minute); err != nil {
					t.Error(err)
				}
			}})
			err := do(t.Context(), l.operator, info)
			for held.Hits() == 0 && t.Context().Err() == nil { // the look before it got no answer in time
				err = do(t.Context(), l.operator, info)
			}
			if err == nil || errors.Is(err, lock.ErrLive) || !strings.Contains(err.Error(), "may have been done") {
				t.Errorf("%v, want an error which says that it may have been done", err)
			}
			l.elapseOperation(opTimeout)
			l.server.Elapse(t, 2*time.Minute)
			l.lift(held)
			if got := inspect(t, l.holder, "k", lock.Abandoned); got.Token != info.Token {
				t.Errorf("the key has the claim %s, want %s", got.Token, info.Token)
			}
		})
	}
}

// fault: an override gets no reply, and its commands are executed after its time. Expected: they have no effect, on a
// claim and on a value.
func TestUnansweredOverrideIsLate(t *testing.T) {
	t.Parallel()
	overrides := map[string]func(ctx context.Context, operator *lock.Locker, info lock.Info) error{
		"forget a value": claimOverrides["forget"],
	}
	for name, do := range claimOverrides {
		overrides[name] = do
	}
	for name, do := range overrides {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const opTimeout = time.Second
			l := newLateOverride(t, opTimeout)
			state := lock.Abandoned
			if name == "forget a value" {
				state = lock.Settled
			}
			leave(t, l.holder, l.server, "k", state)
			info := inspect(t, l.holder, "k", state)
			held := l.proxy.HoldRequest(func(c redistest.Command) bool {
				return len(c.Args) > 4 && strings.HasPrefix(string(c.Args[3]), "OG")
			})
			if err := do(t.Context(), l.operator, info); err == nil {
				t.Fatal("no error")
			}
			l.elapseOperation(opTimeout)
			l.lift(held)
			if got := inspect(t, l.holder, "k", state); got.Token != info.Token {
				t.Errorf("the key has %s, want %s", got.Token, info.Token)
			}
		})
	}
}
