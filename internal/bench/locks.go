package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/onceguard/onceguard/lock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// lockTTL is the length of everybody's locks.
const lockTTL = 10 * time.Second

func lockContenders() []contender {
	return []contender{
		{group: locks, name: "bare", label: "bare: `SET NX PX`, `EVALSHA`", setUp: locking(openBareLock)},
		{group: locks, name: "onceguard", label: "onceguard", setUp: locking(openOurLock)},
		{group: locks, name: "onceguard-late", label: onDefaultsLabel, setUp: onDefaults(locking(openOurLock))},
		{group: locks, name: "redislock", label: "bsm/redislock", setUp: locking(openRedislock)},
		{group: locks, name: "redsync", label: "redsync", setUp: locking(openRedsync)},
		{group: locks, name: "rueidislock", label: "rueidislock", setUp: locking(openRueidislock)},
	}
}

// locker takes and frees keys. An error means that one of both did not happen.
type locker struct {
	cycle func(ctx context.Context, key string) error
	close func() error
}

// locked takes fresh keys and frees them.
type locked struct {
	locker
	conditions
	keys []keys
}

func locking(
	open func(context.Context, conditions) (locker, error),
) func(context.Context, conditions) (subject, error) {
	return func(ctx context.Context, c conditions) (subject, error) {
		l, err := open(ctx, c)
		return &locked{l, c, make([]keys, c.callers)}, err
	}
}

func (l *locked) begin(context.Context) error { return nil }

func (l *locked) caller(i int) func() error {
	keys := &l.keys[i]
	keys.caller = i
	ctx := context.Background()
	return func() error { return l.cycle(ctx, keys.fresh()) }
}

// Every key was set once, and none is left.
func (l *locked) end(ctx context.Context, answers []int) error {
	if err := l.store.wantCalls(ctx, "set", sum(answers)); err != nil {
		return err
	}
	return l.store.wantKeys(ctx, 0)
}

func (l *locked) close() error { return l.locker.close() }

var errHeld = errors.New("a fresh key is held")

func openBareLock(ctx context.Context, c conditions) (locker, error) {
	client := c.newClient()
	release := redis.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then
			return redis.call('DEL', KEYS[1])
		end
		return 0`)
	cycle := func(ctx context.Context, key string) error {
		ok, err := client.SetNX(ctx, key, bareToken, lockTTL).Result()
		if err != nil {
			return err
		}
		if !ok {
			return errHeld
		}
		n, err := release.EvalSha(ctx, client, []string{key}, bareToken).Int()
		if err == nil && n != 1 {
			return errors.New("the lock is gone")
		}
		return err
	}
	return locker{cycle, client.Close}, release.Load(ctx, client).Err()
}

func openOurLock(_ context.Context, c conditions) (locker, error) {
	client := c.newClient()
	l := lock.New(client, "bench", lock.WithTTL(lockTTL))
	cycle := func(ctx context.Context, key string) error {
		lease, ok, err := l.TryAcquire(ctx, key)
		if err != nil {
			return err
		}
		if !ok {
			return errHeld
		}
		return lease.Release(ctx)
	}
	return locker{cycle, func() error {
		return errors.Join(l.Close(context.Background()), client.Close())
	}}, nil
}

// bsm/redislock renews nothing by itself, tells nobody of a loss, and uses keys as they are. Both of its trips run a
// script.
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

// redsync renews nothing by itself, tells nobody of a loss, and uses keys as they are. It is made for several servers,
// and here it has one: each trip has a goroutine all the same.
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
			return errors.New("the lock is gone")
		}
		return err
	}
	return locker{cycle, client.Close}, nil
}

// rueidislock renews, and tells the holder of a loss. All callers share one connection, whose commands it pipelines:
// the number of connections is not the number of callers here. Its own defaults differ in what would be unfair: three
// keys for each lock, where one server needs one; and 20 ms for a trip, which is a matter of luck with 256 callers on
// one core. NOLOOP is what its documentation advises for speed from Redis 7.0.5 on. Whether a release worked it does
// not say; it is seen in Redis at the end.
func openRueidislock(_ context.Context, c conditions) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{c.addr}},
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
