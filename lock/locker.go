package lock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/notify"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// Locker hands out leases on the keys of one namespace. It is safe for concurrent use; a program wants one per
// deployment and namespace, made at start-up.
type Locker struct {
	core    *core
	client  redis.UniversalClient
	store   *store.Store
	backend lease.Settler
	waiters waiters
}

// New returns a Locker on one Redis deployment: a single server, a master behind Sentinel, or a Cluster. It sends nothing
// yet; [Locker.Check] does.
//
// The client stays the caller's: its pool, TLS, hooks and timeouts are used as they are, and Close does not close it. Only
// retries are the Locker's own. Calls that come at the same time travel together: hooks then see a pipeline, with a
// context that has no caller's values. A *redis.Client with ContextTimeoutEnabled is the fastest, see "Fast clients".
//
// The namespace is required because two services on one Redis must not share keys. New panics when it is empty or has
// braces (they would move keys to another Cluster slot), when client is nil, and when client is a *redis.Ring: a ring that
// loses a server moves keys to others, and a key that moves can be granted twice.
func New(client redis.UniversalClient, namespace string, opts ...Option) *Locker {
	checkClient("lock.New", client)
	c := newCore("lock.New", namespace, opts)
	l := &Locker{core: c, client: client, store: c.newStore(client)}
	l.backend = deployment{l.store}
	l.waiters.init(l, notify.NewHub(client, c.group))
	return l
}

// deployment lets leases stand on one Redis deployment.
type deployment struct{ store *store.Store }

func (d deployment) Extend(ctx context.Context, id lease.ID, by time.Duration) store.Outcome {
	return d.store.Extend(ctx, id.Key, id.Token, by)
}

func (d deployment) Hold(ctx context.Context, id lease.ID, hold, length, least time.Duration) store.Outcome {
	return d.store.Hold(ctx, id.Key, id.Token, hold, length, least)
}

func (d deployment) Settle(ctx context.Context, id lease.ID, value []byte, ttl time.Duration) store.Outcome {
	return d.store.Settle(ctx, id.Key, id.Token, value, ttl)
}

func (d deployment) Release(ctx context.Context, id lease.ID, _ time.Time) store.Outcome {
	return d.store.ReleaseInline(ctx, id.Key, id.Token)
}

// StorageKey returns key as it stands in Redis: "namespace:{tag}hash". The hash is the SHA-256 of key in hex, so that
// no caller's text is stored or shown; the tag is its first 14 bits in hex and puts all that belongs to a key into one
// Cluster slot: the key, the channel of the same name, and with [WithFencing] the counter "namespace:{tag}fence".
func (l *Locker) StorageKey(key string) string { return l.core.namespace.Key(key).Text }

// TTL returns the length of its leases, see [WithTTL].
func (l *Locker) TTL() time.Duration { return l.core.options.ttl }

// OpTimeout returns the bound on its calls to Redis, see [WithOpTimeout].
func (l *Locker) OpTimeout() time.Duration { return l.core.options.opTimeout }

// Forget removes whatever key holds, a claim or a value. It is an operator's override: somebody else may take the key at
// once, and a holder that still works learns from its next renewal that its lease is lost. A Settle that goes on in the
// background ([ErrPending]) may still store its value where nobody has taken the key.
func (l *Locker) Forget(ctx context.Context, key string) error {
	return l.store.Forget(ctx, l.core.namespace.Key(key))
}

// Go calls f in a goroutine that Close waits for. The context that f gets is done once Close is called: f has to return
// soon after that. It is for work that belongs to a lease and goes on after the caller has returned.
func (l *Locker) Go(f func(context.Context)) {
	group := l.core.group
	group.Go(func() { f(group.Context()) })
}

// Close ends the background work: renewals, subscriptions, and releases and settlements that are tried again. Waiters get
// [ErrClosed]. Each value that could not be stored yet ([ErrPending]) is tried once more; [ErrGivenUp] says how many were
// not stored even then.
//
// Close waits for what is in flight, at most until ctx is done, and then returns the cause of that. A command to a silent
// server is in flight until the client's ReadTimeout ends it, unless the client has ContextTimeoutEnabled.
//
// Close a Locker after http.Server.Shutdown and before its client. From then on it takes no key ([ErrClosed]). Leases that
// are still out are no longer renewed and run out, but can still be settled and released. In a testing/synctest bubble,
// close it before the bubble ends: idle goroutines stay for up to 100 ms otherwise.
func (l *Locker) Close(ctx context.Context) error {
	l.core.backlog.Close()
	err := l.core.close(ctx)
	return errors.Join(err, l.core.backlog.Lost())
}
