package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Locker hands out leases on the keys of one namespace. It is safe for concurrent use; a program wants one per
// deployment and namespace, made at start-up.
type Locker struct {
	client redis.UniversalClient
	*base
	routes   routes
	terms    terms       // of commands that pilots send: they end when no caller waits any more
	ownTerms terms       // of those that callers send themselves: they end when the first has to return
	punctual bool        // the client returns when a context's deadline is over
	answered atomic.Bool // at least once: go-redis's first handshake takes locks that heed no deadline
	seats    seats
	queues   queues
	channel  channel
	backlog  backlog
}

// New returns a Locker on one Redis deployment: a single server, a master behind Sentinel, or a Cluster. It sends
// nothing yet; [Locker.Check] does. The client stays the caller's: its pool, TLS, hooks and timeouts are used as they
// are, but for retries, which the Locker makes itself, and Close does not close it. Calls that come at the same time
// travel together: hooks see a pipeline then, with a context that has nobody's values.
//
// A *redis.Client with ContextTimeoutEnabled is the fastest. It is trusted, like its hooks and its Dialer, to return
// when a context's deadline is over, and so a Claim, TryAcquire, Settle or Release that finds few others under way is
// sent by its own goroutine, and not by another one that it could leave behind. A cancellation ends such a call only
// when Redis has answered, or the time for one operation is over. That is not so before the first answer, with
// [WithReplicas], for notes and values of about 4 KiB and more, and where go-redis heeds no deadline: with a
// ReadTimeout or WriteTimeout of -2, a Limiter, a CredentialsProvider, or a StreamingCredentialsProvider. (A Dialer
// that leaves the TLS handshake to the first write breaks that trust, and so may go-redis's relaxed timeouts while a
// server announces maintenance.)
//
// The namespace is required because keys of two services on one Redis must not meet. New panics when it is empty or has
// braces (they would move keys to another Cluster slot), when client is nil, and when it is a *redis.Ring: a ring that
// loses a server moves keys to others, and a key that moves can be granted twice.
func New(client redis.UniversalClient, namespace string, opts ...Option) *Locker {
	checkClient("lock.New", client)
	l := newNode(client, newBase("lock.New", namespace, opts))
	l.queues.init(l)
	return l
}

// newNode returns a Locker that cannot wait: one of a Quorum's.
func newNode(client redis.UniversalClient, b *base) *Locker {
	open := b.opTimeout / 10
	l := &Locker{
		client: client, base: b, punctual: isPunctual(client) && b.replicas == 0,
		terms:    terms{open: open, length: open + b.opTimeout},
		ownTerms: terms{open: open, length: b.opTimeout},
	}
	l.routes.init(l)
	l.channel.init(l)
	return l
}

// isPunctual tells whether client returns when a context's deadline is over. A Cluster's client is not known to: it asks
// other nodes for the slots in between. What is excluded are the parts of go-redis that get no context.
func isPunctual(client redis.UniversalClient) bool {
	single, ok := client.(*redis.Client)
	if !ok {
		return false
	}
	o := single.Options()
	return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 &&
		o.Limiter == nil && o.CredentialsProvider == nil && o.StreamingCredentialsProvider == nil
}

// StorageKey returns key as it stands in Redis: "namespace:{tag}hash". The hash is the SHA-256 of key in hex, so that
// no caller's text is stored or shown; the tag is its first 14 bits in hex and puts all that belongs to a key into one
// Cluster slot: the key, the channel of the same name, and with [WithFencing] the counter "namespace:{tag}fence".
func (l *Locker) StorageKey(key string) string { return l.keyText(key) }

// TTL returns the length of its leases, see [WithTTL].
func (l *Locker) TTL() time.Duration { return l.ttl }

// OpTimeout returns the bound on its calls to Redis, see [WithOpTimeout].
func (l *Locker) OpTimeout() time.Duration { return l.opTimeout }

// Forget removes whatever key holds, a claim or a value. It is an operator's override: a holder that still works
// learns from its next renewal that its lease is lost, and somebody else may take the key at once.
func (l *Locker) Forget(ctx context.Context, key string) error {
	t := l.newTrip(ctx, l.keyOf(key))
	a := t.ask(func(t *trip) (reply, error) {
		return t.eval(forgetScript, 1, t.key.arg, l.channel.publish)
	})
	return a.wrap("forget")
}

// Close ends the background work: renewals, subscriptions, and releases and settlements that are tried again. Whoever
// waits for a key is told [ErrClosed]. Close waits for what is under way, at most until ctx is done, and then returns
// the cause of that. A command to a silent server is under way until the client's ReadTimeout ends it, unless the
// client has ContextTimeoutEnabled. Each value that could not be stored yet ([ErrPending]) is tried once more;
// [ErrGivenUp] says how many were not stored even then.
//
// Close it after http.Server.Shutdown and before the client, and before the end of a testing/synctest bubble: idle
// goroutines stay for up to 200 ms. From then on no key is taken ([ErrClosed]); leases that
// are still out are no longer renewed and run out, but can still be settled and released.
func (l *Locker) Close(ctx context.Context) error {
	l.backlog.close()
	err := l.close(ctx)
	return errors.Join(err, l.backlog.lost())
}

// validity is how long a lease of length ttl may be trusted, from before it was asked for: one percent is taken off for
// clocks that run at different speeds, and two milliseconds for the server's own expiry resolution.
func validity(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}
