package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
	"github.com/onceguard/onceguard/lock/internal/store"
)

var (
	// ErrOldVersion is a finding of [Locker.Check]: the server is older than Redis 6.0, or does not say its version.
	ErrOldVersion = errors.New("lock: the server's version is not supported")

	// ErrEviction is a finding of [Locker.Check]: a server that is full removes keys before their time.
	ErrEviction = errors.New("lock: the server may evict keys")

	// ErrEvictionUnknown is a finding of [Locker.Check]: the server does not tell what it does when it is full.
	ErrEvictionUnknown = errors.New("lock: the eviction policy is unknown")
)

// Check asks the server, or every master of a Cluster, whether it is fit for what is promised here. It is meant for the
// start of a program. Its error joins what was found, for errors.Is:
//
//   - [ErrOldVersion]: scripts and commands may be missing.
//   - [ErrEviction]: maxmemory-policy is not noeviction. Every key of ours expires, so the volatile policies pick exactly
//     these, and each eviction may become a second run. [ErrEvictionUnknown] if neither INFO nor CONFIG is allowed.
//   - [ErrNotReplicated]: fewer replicas are connected than [WithReplicas] waits for.
//
// Persistence is not looked at: a server that restarts empty has forgotten what was settled.
//
// Any other error means that a server could not be asked within the time for one operation, or that it refuses what a
// Locker asks of it, as an ACL may: Check takes a key with a random name, holds and settles it, and removes it again,
// unless too few replicas are there. Such an error is worth the end of the program: a Locker that may claim but not
// settle lets everything run again. Whether a finding is, or a warning, is the caller's to say.
func (l *Locker) Check(ctx context.Context) error {
	var mu sync.Mutex
	var findings []error
	check := func(ctx context.Context, where string, node redis.Cmdable) error {
		found, err := l.check(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		for _, f := range found {
			findings = append(findings, fmt.Errorf("%s%w", where, f))
		}
		if err != nil {
			return fmt.Errorf("%s%w", where, err)
		}
		return nil
	}
	err := l.core.within(ctx, func(ctx context.Context) error {
		if cluster, ok := l.client.(*redis.ClusterClient); ok {
			return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
				return check(ctx, node.Options().Addr+": ", node)
			})
		}
		return check(ctx, "", l.client)
	})
	mu.Lock()
	found := slices.Clone(findings) // a check that is late may still add to them
	mu.Unlock()
	if err == nil && !errors.Is(errors.Join(found...), ErrNotReplicated) {
		err = l.rehearse(ctx)
	}
	if err != nil {
		err = fmt.Errorf("lock: check: %w", err)
	}
	return errors.Join(append(found, err)...)
}

// rehearse does with a key of its own what is done with others.
func (l *Locker) rehearse(ctx context.Context) error {
	key := store.NewToken().String()
	claim, err := l.Claim(ctx, key, nil)
	if err != nil {
		return err
	}
	const d = time.Minute // whatever happens, it is gone soon after that
	lease := claim.Lease
	return errors.Join(
		lease.Extend(ctx, minTTL), lease.Hold(ctx, d), lease.Settle(ctx, nil, d), lease.Release(ctx), l.Forget(ctx, key),
	)
}

// within calls f, and returns within the time for one operation though go-redis may not heed a context.
func (c *core) within(ctx context.Context, f func(context.Context) error) error {
	limit := c.options.opTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, background.TimeoutError(limit))
	done := make(chan error, 1)
	c.group.Go(func() {
		defer cancel()
		done <- f(ctx)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// check returns what is to be said about one server.
func (l *Locker) check(ctx context.Context, node redis.Cmdable) (findings []error, err error) {
	text, err := node.Info(ctx).Result()
	if err != nil && (!rediserr.IsReply(err) || redis.IsAuthError(err)) {
		return nil, err
	}
	info := parseInfo(text) // none if it is forbidden
	version := info["redis_version"]
	if major, _, _ := strings.Cut(version, "."); atoi(major) < 6 {
		findings = append(findings, fmt.Errorf("%w: INFO says %q, want 6.0 or newer", ErrOldVersion, version))
	}
	switch policy := l.evictionPolicy(ctx, node, info); policy {
	case "noeviction":
	case "":
		findings = append(findings, ErrEvictionUnknown)
	default:
		findings = append(findings, fmt.Errorf("%w: maxmemory-policy is %s, want noeviction", ErrEviction, policy))
	}
	want := l.core.options.replicas
	if n := atoi(info["connected_slaves"]); n < want {
		findings = append(findings, fmt.Errorf("%w: %d replicas are connected, want %d", ErrNotReplicated, n, want))
	}
	return findings, nil
}

// evictionPolicy returns the server's maxmemory-policy, empty if it does not tell.
func (l *Locker) evictionPolicy(ctx context.Context, node redis.Cmdable, info map[string]string) string {
	if policy, ok := info["maxmemory_policy"]; ok {
		return policy
	}
	return node.ConfigGet(ctx, "maxmemory-policy").Val()["maxmemory-policy"]
}

// parseInfo reads the lines "name:value" of an INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// atoi returns 0 for what is no number.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
