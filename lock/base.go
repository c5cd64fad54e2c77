package lock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// base is what a Locker and a Quorum have in common.
type base struct {
	namespace string
	options
	work work
}

// newBase returns what the function called constructor was asked for. It panics in its name.
func newBase(constructor, namespace string, opts []Option) *base {
	if namespace == "" || strings.ContainsAny(namespace, "{}") {
		panic(constructor + ": namespace must be a text without braces, and not empty")
	}
	b := &base{namespace: namespace, options: defaultOptions()}
	for _, opt := range opts {
		opt(&b.options)
	}
	b.options.check()
	b.work.init()
	return b
}

// checkClient panics on a client that no Locker may stand on.
func checkClient(constructor string, client redis.UniversalClient) {
	if client == nil {
		panic(constructor + ": client is nil")
	}
	if _, ok := client.(*redis.Ring); ok {
		panic(constructor + ": client is a *redis.Ring, which moves keys between servers")
	}
}

// storageKey is described at [Locker.StorageKey].
func (b *base) storageKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	k := make([]byte, 0, len(b.namespace)+len(":{0123}")+hex.EncodedLen(len(sum)))
	return string(hex.AppendEncode(b.appendTag(k, sum[0], sum[1]), sum[:]))
}

// appendTag appends what all keys begin with that share the first 14 bits of their hash.
func (b *base) appendTag(k []byte, b0, b1 byte) []byte {
	const digits = "0123456789abcdef"
	tag := (uint16(b0)<<8 | uint16(b1)) >> 2
	k = append(k, b.namespace...)
	return append(k, ':', '{', digits[tag>>12], digits[tag>>8&0xf], digits[tag>>4&0xf], digits[tag&0xf], '}')
}

// ready returns why nothing can be asked for, if so.
func (b *base) ready(ctx context.Context, doing string) error {
	if b.work.closed() {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return fmt.Errorf("lock: %s: %w", doing, context.Cause(ctx))
	}
	return nil
}
