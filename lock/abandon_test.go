package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// trouble is a hook that does something in the place of the next SETs, one after the other.
type trouble struct {
	with []func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
}

func (*trouble) DialHook(next redis.DialHook) redis.DialHook { return next }

func (tr *trouble) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "set" || len(tr.with) == 0 {
			return next(ctx, cmd)
		}
		do := tr.with[0]
		tr.with = tr.with[1:]
		return do(ctx, cmd, next)
	}
}

func (*trouble) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// heldByAnother returns a Locker whose commands pass the hook, and another's lease, under a hold, on the key: a Claim of
// it makes a second command.
func heldByAnother(t *testing.T, b *bubble, tr *trouble, opts ...lock.Option) (*lock.Locker, *lock.Lease) {
	t.Helper()
	theirs := claimUnder(t, b.locker(t, opts...), "k", time.Hour)
	direct := redistest.NewDirect(t, b.client.Options())
	locker := newLocker(t, direct.Client, append(opts, lock.WithOpTimeout(time.Second))...)
	load(t, locker)
	direct.AddHook(tr)
	return locker, theirs
}

func TestSecondCommandHasTheTimeThatRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, tr := newBubble(t), &trouble{}
		locker, _ := heldByAnother(t, b, tr)
		tr.with = []func(context.Context, redis.Cmder, redis.ProcessHook) error{
			func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				defer b.silent.Store(true)
				time.Sleep(400 * time.Millisecond)
				return next(ctx, cmd)
			},
		}
		begun := time.Now()
		claim, err := locker.Claim(t.Context(), "k", nil, 0) // its SET found that somebody has the key
		if took := time.Since(begun); err != nil || claim.State != lock.Held || took != time.Second {
			t.Errorf("Claim: %v, %v after %v, want held after a second", claim.State, err, took)
		}
		b.silent.Store(false)
		closeWithin(t, locker)
	})
}
