package lock

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// NewOwnerContext returns a context that names the owner of a lock, for operators: for example host, process and job.
// TryAcquire and Acquire with that context, or one derived from it, store owner with their claim, and [Locker.Inspect],
// [Locker.Scan] and the command onceguard show it ([Info.Owner]), with the time since when. By default a lock has no
// owner. Package lock/quorum stores it on each master. Claim ignores it, and so do packages middleware and once.
//
// The owner is stored as it is, and everybody who can read Redis can read it: it must not be secret. No option encrypts or
// compresses it, because no program needs it. It decides nothing: two callers with one owner are still two callers.
//
// It must be UTF-8 of at most 128 bytes, without control characters and others that cannot be printed.
// Otherwise TryAcquire and Acquire return an error, and send nothing. The empty owner is none.
func NewOwnerContext(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// ownerKey is the key of an owner in a context.
type ownerKey struct{}

// ownerOf returns the owner that ctx carries.
func ownerOf(ctx context.Context) (string, error) {
	owner, _ := ctx.Value(ownerKey{}).(string)
	switch {
	case len(owner) > store.MaxOwner:
		return "", fmt.Errorf("lock: acquire: the owner has %d bytes, more than %d", len(owner), store.MaxOwner)
	case owner != printable(owner):
		return "", fmt.Errorf("lock: acquire: the owner %q has characters that cannot be printed", owner)
	}
	return owner, nil
}

// printable returns s with U+FFFD in place of what cannot be printed.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return utf8.RuneError
		}
		return c
	}, s)
}
