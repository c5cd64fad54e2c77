package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// For an operator who has a key from a log line or a problem response: Inspect, Forget, SettleAbandoned. They take the
// storage key, because the caller's own key is hashed, and stored nowhere. scan.go finds keys.

// Info is what [Locker.Inspect] and [Locker.Scan] find under a key: everything but a claim's note and the value, which
// may be secret. The times left are by the clock of Redis.
type Info struct {
	Key   string // as Redis has it, see Locker.StorageKey
	State State  // Free, Held, Abandoned or Settled; never Granted

	// Token names this claim or value for Forget and SettleAbandoned; empty when Free. A claim's is that of its
	// lease, [Lease.Token]. A value has another, so that an operator who has inspected a claim cannot remove the value
	// that has replaced it.
	Token string
	Fence int64 // of a claim, see Lease.Fence; 0 without WithFencing
	Size  int   // of what the key holds, in bytes: the note, owner or value, and up to 69 bytes before it

	// IsLock means that TryAcquire, Acquire or Resume has written the claim. Owner is then who: see NewOwnerContext. It
	// is made of at most 128 bytes, and has U+FFFD in place of what cannot be printed.
	IsLock bool
	Owner  string

	// ClaimedAt is set when Held or Abandoned, SettledAt when Settled. See [Claim].
	ClaimedAt, SettledAt time.Time

	// LeaseLeft is when Held: the time until the lease ends, unless it is renewed. HoldLeft is how long the claim
	// stays after its lease: when Held, the whole hold, and when Abandoned, what is left of it.
	LeaseLeft, HoldLeft time.Duration

	// TTL is the time until the key is free by itself: after lease and hold, or when the value expires. It is 0 when
	// Free, and negative if another program has removed the expiry.
	TTL time.Duration
}

// Inspect returns what a storage key holds. It changes nothing, and neither a claim's note nor a value is sent to this
// process.
//
// storageKey is the key as Redis has it ([Locker.StorageKey], middleware.Event.Key), its last 64 digits, or these
// digits after "urn:onceguard:key:", as a problem response has them. The error wraps [ErrNotStorageKey] if the text is
// no key of this Locker's namespace, and is [ErrForeign] if the key holds what this package did not write. After any
// other error nothing is known, for example because Redis did not answer in time ([WithOpTimeout]).
//
// A server that fails over may lose what Inspect has just seen, also with [WithReplicas]: Inspect asks the master
// alone.
func (l *Locker) Inspect(ctx context.Context, storageKey string) (Info, error) {
	key, err := l.parseKey(ctx, "inspect", storageKey)
	if err != nil {
		return Info{}, err
	}
	return inspect(ctx, l.store, key)
}

// ParseKey returns the key as Redis has it ([Locker.StorageKey]), given in any of the forms that Inspect takes. The
// error is [ErrNotStorageKey]. It sends nothing.
func (l *Locker) ParseKey(storageKey string) (string, error) {
	key, err := l.namespace.ParseKey(storageKey)
	return key.Text, err
}

// LookStored is [Locker.Look] for an operator, who has the storage key in one of the forms that Inspect takes. Unlike
// Inspect it returns the note or the value, which may be secret. Its errors are those of Look, and [ErrNotStorageKey].
func (l *Locker) LookStored(ctx context.Context, storageKey string) (claim Claim, err error) {
	key, err := l.parseKey(ctx, "look", storageKey)
	if err != nil {
		return claim, err
	}
	return l.granter.look(ctx, key, false)
}

func inspect(ctx context.Context, s *store.Store, key store.Key) (Info, error) {
	facts, err := s.Inspect(ctx, key)
	if err != nil {
		return Info{}, err
	}
	info := Info{
		Key: key.Text, State: facts.State, Token: facts.Name, Fence: facts.Fence, Size: facts.Size, TTL: facts.TTL,
	}
	if info.IsLock = facts.IsLock; info.IsLock {
		info.Owner = printable(string(facts.Content))
	}
	switch info.State {
	case Held:
		info.ClaimedAt, info.LeaseLeft, info.HoldLeft = facts.At, facts.Left, facts.Hold
	case Abandoned:
		info.ClaimedAt, info.HoldLeft = facts.At, facts.Left
	case Settled:
		info.SettledAt = facts.At
	}
	return info, nil
}

// Forget removes the claim or value that token names ([Info.Token]), and nothing else: Redis compares and removes
// in one step. The key is free then, and its waiters are woken. If it was a claim, its work may have taken effect, and
// the next caller does it again: find out first, and if it has happened, see [Locker.SettleAbandoned].
//
// A claim whose lease has not run out is removed only with evenIfLive: its holder may be at work, and learns only from its
// next renewal that the lease is lost. Before that, another caller can take the key and do the same work.
//
// It also returns nil if the key is free already. [ErrChanged] means that the key holds another claim or value than the
// one that token names, [ErrLive] that the lease has not run out. [ErrNotStorageKey] and [ErrForeign]
// are as for [Locker.Inspect]. After these four nothing was changed, nor will a command that is still on its way change
// anything. [ErrNotReplicated] means that the claim or value is removed, and that a failover may bring it back
// ([WithReplicas]). After any other error it may be removed, or may still be within the time for one operation
// ([WithOpTimeout]): Inspect then shows which.
//
// A holder that still works, and a Settle that is retried in the background ([ErrPending]), can store a value under the
// key afterwards if the key is free: what has happened is not done again.
func (l *Locker) Forget(ctx context.Context, storageKey, token string, evenIfLive bool) error {
	key, err := l.parseKey(ctx, "forget", storageKey)
	if err != nil {
		return err
	}
	head, err := store.ParseName(token)
	if err != nil {
		return err
	}
	return l.store.Override(ctx, key, store.Override{Operation: "forget", Head: head, Live: evenIfLive})
}

// SettleAbandoned replaces the abandoned claim that token names ([Info.Token]) with a value, for ttl in whole
// milliseconds. It is for work that has taken effect, although its holder died before it could call Settle. settle
// gets the claim's note and returns the value; it is called at most once, in this goroutine. If settle returns an
// error, SettleAbandoned stores nothing and returns that error as it is. One step checks that the claim is still there
// and still abandoned, writes the value, and wakes the waiters. From then on a claim of the key returns the value, and
// a late Settle or Release of the holder changes nothing.
//
// [ErrChanged] means that the key is free, or holds something else than that claim, and [ErrLive] that the claim's
// lease has not run out. After these errors nothing is stored, nor after [ErrNotStorageKey], [ErrForeign], or the error
// for a ttl below 1 ms. After any other error the value may be stored or not, as with Forget.
func (l *Locker) SettleAbandoned(
	ctx context.Context, storageKey, token string, settle func(note []byte) (value []byte, err error), ttl time.Duration,
) error {
	if ttl < time.Millisecond {
		return fmt.Errorf("lock: settle: %v is below a millisecond", ttl)
	}
	key, err := l.parseKey(ctx, "settle", storageKey)
	if err != nil {
		return err
	}
	head, err := store.ParseName(token)
	if err != nil {
		return err
	}
	note, err := l.store.Abandoned(ctx, key, head)
	if err != nil {
		return err
	}
	value, err := settle(note)
	if err != nil {
		return err
	}
	stored := append(store.NewValue(store.NewToken(), time.Now(), len(value)), value...)
	return l.store.Override(ctx, key, store.Override{Operation: "settle", Head: head, Value: stored, TTL: ttl})
}

// parseKey returns the key that an operator has named, if the Locker is ready for the operation.
func (l *Locker) parseKey(ctx context.Context, operation, storageKey string) (store.Key, error) {
	if err := l.ready(ctx, operation); err != nil {
		return store.Key{}, err
	}
	return l.namespace.ParseKey(storageKey)
}
