package lock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Locker hands out leases on the keys of one namespace. It is safe for concurrent use; a program wants one per
// deployment and namespace, made at start-up.
type Locker struct {
	client    redis.UniversalClient
	namespace string
	options

	work work
}

// New returns a Locker on one Redis deployment: a single server, a master behind Sentinel, or a Cluster. It sends
// nothing yet. The client stays the caller's: its pool, TLS, hooks and timeouts are used as they are, but for retries,
// which the Locker makes itself, and Close does not close it.
//
// The namespace is required because keys of two services on one Redis must not meet. New panics when it is empty or has
// braces (they would move keys to another Cluster slot), when client is nil, and when it is a *redis.Ring: a ring that
// loses a server moves keys to others, and a key that moves can be granted twice.
func New(client redis.UniversalClient, namespace string, opts ...Option) *Locker {
	if client == nil {
		panic("lock.New: client is nil")
	}
	if _, ok := client.(*redis.Ring); ok {
		panic("lock.New: client is a *redis.Ring, which moves keys between servers")
	}
	if namespace == "" || strings.ContainsAny(namespace, "{}") {
		panic("lock.New: namespace must be a text without braces, and not empty")
	}
	l := &Locker{client: client, namespace: namespace, options: defaultOptions()}
	for _, opt := range opts {
		opt(&l.options)
	}
	l.work.init()
	return l
}

// StorageKey returns key as it stands in Redis: "namespace:{tag}hash". The hash is the SHA-256 of key in hex, so that
// no caller's text is stored or shown; the tag is its first 14 bits in hex and puts all that belongs to a key into one
// Cluster slot.
func (l *Locker) StorageKey(key string) string {
	const digits = "0123456789abcdef"
	sum := sha256.Sum256([]byte(key))
	tag := (uint16(sum[0])<<8 | uint16(sum[1])) >> 2

	b := make([]byte, 0, len(l.namespace)+len(":{0123}")+hex.EncodedLen(len(sum)))
	b = append(b, l.namespace...)
	b = append(b, ':', '{', digits[tag>>12], digits[tag>>8&0xf], digits[tag>>4&0xf], digits[tag&0xf], '}')
	return string(hex.AppendEncode(b, sum[:]))
}

// Forget removes whatever key holds, a claim or a value. It is an operator's override: a holder that still works
// learns from its next renewal that its lease is lost, and somebody else may take the key at once.
func (l *Locker) Forget(ctx context.Context, key string) error {
	a := l.ask(ctx, func(ctx context.Context) (string, error) {
		return l.send(ctx, "del", l.StorageKey(key))
	}, nil)
	return a.wrap("forget")
}

// Close ends the background work: renewals, releases and settlements that are tried again. It waits for what is under
// way, at most until ctx is done, and then returns the cause of that. A command to a silent server is under way until
// the client's ReadTimeout ends it, unless the client has ContextTimeoutEnabled.
//
// Close it after http.Server.Shutdown and before the client. From then on no key is taken ([ErrClosed]); leases that
// are still out are no longer renewed and run out, but can still be settled and released.
func (l *Locker) Close(ctx context.Context) error {
	return l.work.close(ctx)
}

// validity is how long a lease of length ttl may be trusted, from before it was asked for: one percent is taken off for
// clocks that run at different speeds, and two milliseconds for the server's own expiry resolution.
func validity(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}
