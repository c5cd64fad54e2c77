package lock

// Locker.Check, which a program calls at its start.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
	"github.com/onceguard/onceguard/lock/internal/store"
)

var (
	// ErrOldVersion is a finding of [Locker.Check]: the server is older than Redis 6.0, or does not report its version.
	ErrOldVersion = errors.New("lock: the server's version is not supported")

	// ErrEviction is a finding of [Locker.Check]: the server removes keys before they expire when its memory is full.
	ErrEviction = errors.New("lock: the server may evict keys")

	// ErrEvictionUnknown is a finding of [Locker.Check]: the server does not report its eviction policy.
	ErrEvictionUnknown = errors.New("lock: the eviction policy is unknown")
)

// Check reports whether the server, or every master of a Cluster, can keep what this package promises. Call it when the
// program starts. Its error joins the findings, for errors.Is:
//
//   - [ErrOldVersion]: scripts and commands may be missing.
//   - [ErrEviction]: maxmemory-policy is not noeviction. All keys of a Locker expire, except the fence counters, so the
//     volatile policies evict exactly these, and an eviction may cause a second run. [ErrEvictionUnknown] if the server
//     allows neither INFO nor CONFIG.
//   - [ErrNotReplicated]: fewer replicas are connected than [WithReplicas] waits for.
//
// The caller decides whether a finding ends the program or is only logged. Any other error should end it: a server did
// not answer within the time for one operation ([WithOpTimeout]), or refuses commands that a Locker sends, as an ACL
// may. A Locker that can claim but not settle would let all work be done again. So Check sends an EVAL to each server:
// EVALSHA succeeds without the right to EVAL, but only until the server restarts and has forgotten the scripts. Unless
// too few replicas are connected, Check also takes a key with a random name, reads, extends and settles it, and removes
// it. It does not try the messages that wake waiters: a server that refuses them delays a waiter until its next poll.
//
// Check also finds out whether the server has SET with IFEQ (Redis 8.4, Valkey 8.1), and DELEX (Redis 8.4) or DELIFEQ
// (Valkey 9.0), and whether its ACL allows them. From then on Settle and Release send them first, because scripts take
// longer: see "Servers" in the package comment. Without a Check, and on other servers, they send scripts.
//
// Check does not look at persistence: a server that restarts empty has lost the values. For a Locker without Redis
// ([None]) it returns nil.
func (l *Locker) Check(ctx context.Context) error {
	if l.IsNone() {
		return nil
	}
	key := l.namespace.Key(store.NewToken().String())
	findings, err := l.servers.check(ctx, l.options.store.Replicas, key.Text)
	if tooFewReplicas := errors.Is(errors.Join(findings...), ErrNotReplicated); err == nil && !tooFewReplicas {
		err = l.checkCommands(ctx)
	}
	if err != nil {
		err = fmt.Errorf("lock: check: %w", err)
	}
	return errors.Join(append(findings, err)...)
}

// check returns the findings about all masters. Its error is that of one master on which checkNode has failed.
func (s *servers) check(ctx context.Context, replicas int, key string) (findings []error, err error) {
	nodes, err := s.masters(ctx)
	var mu sync.Mutex
	var all sync.WaitGroup
	for addr, node := range nodes {
		all.Go(func() {
			ofNode, nodeErr := withTimeout(ctx, s, func(ctx context.Context) ([]error, error) {
				return checkNode(ctx, node, replicas, key)
			})
			mu.Lock()
			defer mu.Unlock()
			for _, finding := range ofNode {
				findings = append(findings, fmt.Errorf("%s%w", addr, finding))
			}
			if nodeErr != nil {
				err = fmt.Errorf("%s%w", addr, nodeErr)
			}
		})
	}
	all.Wait()
	return findings, err
}

// checkCommands runs the operations of a Locker on a key with a random name. The last one is the release of a claim that
// is gone: only then does a script send EXISTS.
func (l *Locker) checkCommands(ctx context.Context) error {
	name := store.NewToken().String()
	claim, err := l.Claim(ctx, name, nil, 0)
	if err != nil {
		return err
	}
	lease, key := claim.Lease, l.namespace.Key(name)
	d := min(l.TTL()+minTTL, MaxHold) // if an operation fails, the key expires after that
	err = lease.Extend(ctx, d)
	_, lookErr := l.store.Look(ctx, key, false)
	absent := l.namespace.Key(store.NewToken().String())
	return errors.Join(
		err, lookErr, lease.Settle(ctx, nil, d), lease.Release(ctx), l.store.FindNatives(ctx, absent),
		l.Forget(ctx, claim.Key, store.ValueName(lease.Token()), false),
		l.store.Release(ctx, key, store.NewToken(), nil, false).Wrap("release"),
	)
}

// checkNode returns the findings about one server. It returns an error if the server does not answer, or refuses EVAL. The
// EVAL declares an absent key, because managed services refuse scripts without keys. In a Cluster another node may have the
// slot of that key: a redirection comes only after the ACL has allowed the command.
func checkNode(ctx context.Context, node redis.Cmdable, replicas int, key string) (findings []error, err error) {
	text, err := node.Info(ctx).Result()
	if err != nil && (!rediserr.IsReply(err) || redis.IsAuthError(err)) {
		return nil, err
	}
	info := parseInfo(text) // empty if INFO is forbidden
	version := info["redis_version"]
	if major, _, _ := strings.Cut(version, "."); atoi(major) < 6 {
		findings = append(findings, fmt.Errorf("%w: INFO says %q, want 6.0 or newer", ErrOldVersion, version))
	}
	policy, ok := info["maxmemory_policy"]
	if !ok {
		policy = node.ConfigGet(ctx, "maxmemory-policy").Val()["maxmemory-policy"]
	}
	switch policy {
	case "noeviction":
	case "": // neither INFO nor CONFIG is allowed
		findings = append(findings, ErrEvictionUnknown)
	default:
		findings = append(findings, fmt.Errorf("%w: maxmemory-policy is %s, want noeviction", ErrEviction, policy))
	}
	if n := atoi(info["connected_slaves"]); n < replicas {
		findings = append(findings, fmt.Errorf("%w: %d replicas are connected, want %d", ErrNotReplicated, n, replicas))
	}
	if err = node.Eval(ctx, "return 1", []string{key}).Err(); rediserr.IsRedirection(err) {
		err = nil
	}
	return findings, err
}

// parseInfo returns the lines "name:value" of INFO as a map.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// atoi returns s as a number, or 0 if it is none.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
