// The lock libraries, and the load that they are measured with.

package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/onceguard/onceguard/lock"
)

// lockTTL is the TTL of all locks.
const lockTTL = 10 * time.Second

var errHeld, errGone = errors.New("a fresh key is held"), errors.New("the lock is gone")

// locker takes a key and frees it in one cycle. An error means that one of the two did not happen.
type locker struct {
	cycle func(ctx context.Context, key string) error
	close func() error
}

// locking returns the setUp of callers that take fresh keys and free them.
func locking(open func(context.Context, conditions) (locker, error)) setUp {
	return func(ctx context.Context, c conditions) (*subject, error) {
		l, err := open(ctx, c)
		keys := make([]keys, c.callers)
		return &subject{
			caller: func(i int) func() error {
				keys[i].caller = i
				ctx := context.Background()
				return func() error { return l.cycle(ctx, keys[i].fresh()) }
			},
			end: func(ctx context.Context, answers []int) error {
				return errors.Join(c.server.wantCalls(ctx, "set", sum(answers)), c.server.wantKeys(ctx, 0))
			},
			close: l.close,
		}, err
	}
}

// taken returns errHeld if a key was not taken for no other reason.
func taken(ok bool, err error) error {
	if err == nil && !ok {
		return errHeld
	}
	return err
}

func openBareLock(ctx context.Context, c conditions) (locker, error) {
	client := c.newClient()
	release := redis.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then
			return redis.call('DEL', KEYS[1])
		end
		return 0`)
	cycle := func(ctx context.Context, key string) error {
		if err := taken(client.SetNX(ctx, key, bareToken, lockTTL).Result()); err != nil {
			return err
		}
		n, err := release.EvalSha(ctx, client, []string{key}, bareToken).Int()
		if err == nil && n != 1 {
			return errGone
		}
		return err
	}
	return locker{cycle, client.Close}, release.Load(ctx, client).Err()
}

func openOurLock(_ context.Context, c conditions) (locker, error) {
	client := c.newClient()
	l := newLocker(client, lock.WithTTL(lockTTL))
	cycle := func(ctx context.Context, key string) error {
		lease, ok, err := l.TryAcquire(ctx, key)
		if err := taken(ok, err); err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	return locker{cycle, func() error { return errors.Join(l.Close(context.Background()), client.Close()) }}, nil
}

// bsm/redislock does not renew, does not report a loss, and uses keys as they are. Both of its commands are scripts.
func openRedislock(_ context.Context, c conditions) (locker, error) {
	client := c.newClient()
	l := redislock.New(client)
	cycle := func(ctx context.Context, key string) error {
		held, err := l.Obtain(ctx, key, lockTTL, nil)
		if err != nil {
			return err
		}
		return held.Release(ctx)
	}
	return locker{cycle, client.Close}, nil
}

// redsync is like that too, and made for several servers: it starts a goroutine for each command, even with one server.
func openRedsync(_ context.Context, c conditions) (locker, error) {
	client := c.newClient()
	sync := redsync.New(goredis.NewPool(client))
	cycle := func(ctx context.Context, key string) error {
		m := sync.NewMutex(key, redsync.WithExpiry(lockTTL), redsync.WithTries(1))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		ok, err := m.UnlockContext(ctx)
		if err == nil && !ok {
			return errGone
		}
		return err
	}
	return locker{cycle, client.Close}, nil
}

// rueidislock renews, and tells the holder of a loss. All callers share one connection, whose commands it pipelines. Two
// of its defaults would be unfair here: three keys for each lock, where one server needs one, and a limit of 20 ms for a
// command. Its documentation advises NOLOOP from Redis 7.0.5 on. Whether a release worked shows in the keys that are left.
func openRueidislock(_ context.Context, c conditions) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{c.server.addr}},
		KeyMajority:    1,
		KeyValidity:    lockTTL,
		TryNextAfter:   500 * time.Millisecond,
		NoLoopTracking: true,
	})
	if err != nil {
		return locker{}, err
	}
	cycle := func(ctx context.Context, key string) error {
		_, release, err := l.TryWithContext(ctx, key)
		if err != nil {
			return err
		}
		release()
		return nil
	}
	return locker{cycle, func() error { l.Close(); return nil }}, nil
}
