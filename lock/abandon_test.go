package lock_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// The cause of the caller's context may be a server's error, as with an errgroup, which ends all of a group with the
// first error of one. Such a cause is not a reply to the command that the caller abandons.
//
// fault: the caller's ctx cancelled before, during, after
func TestCauseIsNotTakenForAReply(t *testing.T) {
	for _, cause := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.", "NOREPLICAS Not enough good replicas to write.",
		"MISCONF Redis is configured to save RDB snapshots", "ERR syntax error", "syntax error",
		"NOSCRIPT No matching script.", "READONLY You can't write against a read only replica.",
		"MOVED 1 127.0.0.1:1", "LOADING Redis is loading the dataset in memory", "WRONGTYPE of another key",
	} {
		t.Run(cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithoutRenewal())
				load(t, locker)
				lease := acquire(t, locker, "taken")
				b.silent.Store(true)
				for what, call := range map[string]func(context.Context) error{
					"TryAcquire": func(ctx context.Context) error { _, _, err := locker.TryAcquire(ctx, "k"); return err },
					"Extend":     func(ctx context.Context) error { return lease.Extend(ctx, time.Hour) },
					"Forget":     func(ctx context.Context) error { return locker.Forget(ctx, locker.StorageKey("other"), lockToken) },
				} {
					ctx, cancel := context.WithCancelCause(t.Context())
					left := make(chan error)
					synctest.Wait()
					before := b.total()
					go func() { left <- call(ctx) }()
					synctest.Wait()
					reply := serverError(cause)
					cancel(reply)
					if err := <-left; !errors.Is(err, reply) || errors.Is(err, lock.ErrForeign) || errors.Is(err, lock.ErrLost) {
						t.Errorf("%s: %v, want the cause", what, err)
					}
					if what == "TryAcquire" {
						continue // it is released in the background
					}
					if sent := b.total() - before; sent > 1 {
						t.Errorf("%s has sent %d commands", what, sent)
					}
				}
				b.silent.Store(false)
				for range 2 * maxInFlight {
					if err := acquire(t, locker, "other").Release(t.Context()); err != nil {
						t.Errorf("Release afterwards: %v", err)
					}
				}
				closeWithin(t, locker)
			})
		})
	}
}

// serverError is an error that a server has sent.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// fault: the caller's ctx cancelled before, during, after
func TestNothingIsSentForACallerThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithoutRenewal())
		load(t, locker)
		lease := acquire(t, locker, "k")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := b.total()
		for range 50 { // an answer and the end of a context may be there at once
			for what, err := range map[string]error{
				"Extend": lease.Extend(ctx, time.Hour), "Forget": locker.Forget(ctx, locker.StorageKey("k"), lease.Token()),
			} {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v, want Canceled", what, err)
				}
			}
		}
		synctest.Wait()
		if sent := b.total() - before; sent != 0 {
			t.Errorf("%d commands were sent", sent)
		}
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		closeWithin(t, locker)
	})
}

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

// The first SET of a Claim arrives when the second command is about to be sent. The lease counts from before the SET.
//
// fault: reply to the claim dropped (proxy closes)
func TestSecondCommandCountsFromTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, tr := newBubble(t), &trouble{}
		opts := []lock.Option{lock.WithTTL(3 * time.Second), lock.WithoutRenewal()}
		locker, theirs := heldByAnother(t, b, tr, opts...)
		rival := b.locker(t, opts...)
		var first []any
		tr.with = []func(context.Context, redis.Cmder, redis.ProcessHook) error{
			func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error { // its connection breaks
				first = cmd.Args()
				cmd.SetErr(io.ErrUnexpectedEOF)
				return io.ErrUnexpectedEOF
			},
			func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				if err := theirs.Release(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
				b.client.Do(context.WithoutCancel(ctx), first...)
				time.Sleep(400 * time.Millisecond)
				return err
			},
		}
		claim, err := locker.Claim(t.Context(), "k", nil, 0)
		if err != nil || claim.State != lock.Granted {
			t.Fatalf("Claim: %v, %v", claim.State, err)
		}
		time.Sleep(b.server.TTL(locker.StorageKey("k")) + time.Millisecond)
		if _, ok, err := rival.TryAcquire(t.Context(), "k"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if left := time.Until(claim.Lease.Until()); left > 0 {
			t.Errorf("two hold the key, for %v", left)
		}
		closeWithin(t, locker)
	})
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
