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
	ttlArg any // the ttl in milliseconds
	work   work
	crew   crew
	alarms alarms
}

// newBase returns what the function called constructor was asked for. It panics in its name.
func newBase(constructor, namespace string, opts []Option) *base {
	if namespace == "" || strings.ContainsAny(namespace, "{}") {
		panic(constructor + ": namespace must be a text without braces, and not empty")
	}
	b := &base{namespace: namespace, options: defaultOptions()}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("%s: option %d is nil", constructor, i+1))
		}
		opt(&b.options)
	}
	b.options.check()
	b.ttlArg = b.ttl.Milliseconds()
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

// storageKey is a key as it stands in Redis. As an argument it is made once, for all commands.
type storageKey struct {
	text string
	arg  any
}

func (b *base) keyOf(key string) storageKey {
	text := b.keyText(key)
	return storageKey{text: text, arg: text}
}

// keyText is described at [Locker.StorageKey].
func (b *base) keyText(key string) string {
	var room [256]byte // of most keys, raw and hashed
	sum := sha256.Sum256(append(room[:0], key...))
	return string(hex.AppendEncode(b.appendTag(room[:0], sum[0], sum[1]), sum[:]))
}

// appendTag appends what all keys begin with that share the first 14 bits of their hash.
func (b *base) appendTag(k []byte, b0, b1 byte) []byte {
	const digits = "0123456789abcdef"
	tag := (uint16(b0)<<8 | uint16(b1)) >> 2
	k = append(k, b.namespace...)
	return append(k, ':', '{', digits[tag>>12], digits[tag>>8&0xf], digits[tag>>4&0xf], digits[tag&0xf], '}')
}

// detached returns a context with the values of ctx, and no end.
func detached(ctx context.Context) context.Context {
	if _, limited := ctx.Deadline(); !limited && ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// close is described at [Locker.Close].
func (b *base) close(ctx context.Context) error {
	b.crew.disband()
	return b.work.close(ctx)
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
