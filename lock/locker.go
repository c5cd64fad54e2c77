package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/notify"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// Locker grants leases on the keys of one namespace on one Redis deployment. It is safe for concurrent use. A program
// makes one for each deployment and namespace, at start-up.
type Locker struct {
	namespace store.Namespace
	options   options
	servers   servers
	group     *background.Group // of all goroutines that outlive a call
	store     *store.Store
	granter   granter
	waiters   waiters
	held      held
}

// New returns a Locker on one Redis deployment: a single server, a master behind Sentinel, or a Cluster. New sends
// nothing; [Locker.Check] does.
//
// The client stays the caller's: New changes none of its options, and Close does not close it. The Locker switches off
// go-redis's retries for its commands, and retries by itself. It sends commands that come at the same time as one
// pipeline. Hooks then see the values of [WithBaseContext] and no caller's values. A hook that panics ends the process:
// the Locker's own goroutines send all commands, so no caller is on its stack to recover.
//
// The namespace is required because two services on one Redis must not share keys. New panics if it is empty or has
// braces (braces would move keys to another Cluster slot), if client is nil, and if client is a *redis.Ring: a ring
// that loses a server moves its keys to others, and a key that moves can be granted twice.
func New(client redis.UniversalClient, namespace string, opts ...Option) *Locker {
	option.Check(client != nil, "lock.New: client is nil")
	_, isRing := client.(*redis.Ring)
	option.Check(!isRing, "lock.New: client is a *redis.Ring, which moves keys between servers")
	return newLocker("lock.New", client, namespace, newOptions(opts))
}

// None returns a Locker without Redis, for a program whose requests are protected by a database alone. It names keys
// ([Locker.StorageKey]), and runs background work that Close waits for ([Locker.Go]). It grants nothing: every method
// that would need Redis returns [ErrNoRedis] at once, and [ErrClosed] after Close. Only [Locker.Check] returns nil. None
// panics if the namespace is empty or has braces.
//
// Packages middleware and once then need an intent journal, whose row takes the place of the claim.
func None(namespace string) *Locker {
	return newLocker("lock.None", nil, namespace, defaultOptions())
}

// IsNone reports whether the Locker is without Redis: see [None].
func (l *Locker) IsNone() bool { return l.servers.client == nil }

// newLocker returns a Locker. client is nil for None.
func newLocker(constructor string, client redis.UniversalClient, namespace string, o options) *Locker {
	isNamespace := namespace != "" && !strings.ContainsAny(namespace, "{}")
	option.Check(isNamespace, "%s: namespace must be a text that is not empty and has no braces", constructor)
	o.store.Namespace = store.Namespace(namespace)
	group := background.NewGroup(o.base)
	l := &Locker{namespace: o.store.Namespace, options: o, group: group, store: store.New(client, group, o.store)}
	l.servers = servers{client, group, o.store.OpTimeout}
	l.granter.store, l.granter.leases = l.store, lease.Config{
		TTL: o.store.TTL, OpTimeout: o.store.OpTimeout, Renew: o.renew, Group: group, Backlog: &l.granter.backlog,
	}
	hub := notify.NewHub(client, group)
	l.waiters = waiters{granter: &l.granter, group: group, hub: hub, retry: o.retry, byKey: map[string]*waitList{}}
	l.held = held{isOn: o.releaseOnClose, group: group, leases: map[*Lease]struct{}{}}
	return l
}

// StorageKey returns key as Redis has it: "namespace:{tag}hash". The hash is the SHA-256 of key in hex, so that no
// caller's text is stored. The tag is the hash's first 14 bits in hex. It puts the key, the channel of the same name
// and, with [WithFencing], the counter "namespace:{tag}fence" into one Cluster slot.
func (l *Locker) StorageKey(key string) string { return l.namespace.Key(key).Text }

// TTL returns the length of the Locker's leases, see [WithTTL].
func (l *Locker) TTL() time.Duration { return l.options.store.TTL }

// OpTimeout returns the time for one operation, see [WithOpTimeout].
func (l *Locker) OpTimeout() time.Duration { return l.options.store.OpTimeout }

// Retry returns when and how often Acquire and Wait poll, see [WithRetry].
func (l *Locker) Retry() Retry { return l.options.retry }

// Go calls f in a goroutine that Close waits for. The context that f gets carries the values of [WithBaseContext], and
// is done once Close is called: f has to return soon after that. Go is for work that belongs to a lease and goes on
// after the caller has returned.
func (l *Locker) Go(f func(context.Context)) {
	l.group.Go(func() { f(l.group.Context()) })
}

// Close ends the background work: renewals, subscriptions, and the retries of releases and settlements. Waiters return
// [ErrClosed]. Close tries once more to store each pending value ([ErrPending]). If it could not store all, its error
// wraps [ErrGivenUp], and its text has their number. It also tries once more each release that has not succeeded, and to
// release each claim that no run needs (see [Locker.Claim]). If a lease was not released and has not run out, or a claim
// under a hold may still be written again, the error wraps [ErrUnreleased], and its text has their number and up to 100 of
// their storage keys.
//
// Close waits for what is in flight. If ctx is done first, its error has the cause of ctx. A command to a silent server
// is in flight until the client's ReadTimeout ends it, unless the client has ContextTimeoutEnabled.
//
// Close a Locker after http.Server.Shutdown and before its client. A closed Locker takes no key ([ErrClosed]). It does
// not renew its leases, which run out, but they can still be settled and released. With [WithReleaseOnClose] it releases
// those of locks.
func (l *Locker) Close(ctx context.Context) error {
	l.held.release()
	l.granter.backlog.Close()
	err := l.group.Close(ctx)
	return errors.Join(err, l.granter.backlog.TakeUnstored(), l.store.TakeUnreleased())
}

// ready returns an error if the Locker is without Redis or closed, or ctx is done.
func (l *Locker) ready(ctx context.Context, operation string) error {
	if l.group.Closed() {
		return ErrClosed
	}
	if l.IsNone() {
		return ErrNoRedis
	}
	if ctx.Err() != nil {
		return fmt.Errorf("lock: %s: %w", operation, context.Cause(ctx))
	}
	return nil
}
