package lock

// From a Locker through its granter to store.Claim and back: a store.Entry becomes a Claim, and a granted Entry a Lease.
// The head of internal/store/claim.go tells what happens when the reply to a claim is lost.

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// State is what a key holds: see [Claim]. Its String is its name in lower case.
type State = store.State

const (
	Free      = store.Free      // nothing; Look, Wait and Inspect return it, Claim takes a free key
	Granted   = store.Granted   // our own claim, just taken: Claim.Lease
	Held      = store.Held      // another caller's claim, its lease not run out as far as is known: Claim.Note
	Abandoned = store.Abandoned // another caller's claim, kept by its hold after its lease: Claim.Note
	Settled   = store.Settled   // a value: Claim.Value
)

// Claim is the result of [Locker.Claim], [Locker.Look] and [Locker.Wait]: the state of a key, and what it holds.
type Claim struct {
	State State
	Key   string // as Redis has it, see Locker.StorageKey
	Lease *Lease // when Granted
	Note  []byte // when Held or Abandoned: the note of the holder's claim; nil for a lock, see NewOwnerContext
	Value []byte // when Settled: what the last holder stored

	// ClaimedAt is when the holder claimed the key, when Held or Abandoned. SettledAt is when the last holder called
	// Settle, when Settled. Both are by the wall clock of the process that wrote them, in whole milliseconds: use them
	// to inform, not to decide.
	ClaimedAt, SettledAt time.Time

	lasts time.Duration // store.Entry.Left: how long the state lasts without a renewal; 0 if that is not known
}

// Claim takes key if it is free, and otherwise returns what it holds. A key that another caller holds is a [State], not
// an error. Claim takes one round trip. If it meets a claim under a hold, it takes a second round trip to see whether
// the lease of that claim has run out. If that trip fails, the State is Held. An older server and [WithReplicas] may
// also need a second round trip.
//
// With a hold, the claim stays for that long after its lease has ended, in whole milliseconds, from 1 ms to [MaxHold];
// 0 means no hold. It is for work that must not be done twice even if this process dies in the middle of it: until
// the hold is over, a claim that is no longer renewed is [Abandoned], and the key is not free. Release, Settle and
// Forget end it earlier. The holder may settle late, as long as the key has its claim. The key expires after the length
// of the lease plus the hold, and every renewal restores that. The lease has run out when no more than the hold is
// left, by Redis's clock alone. The hold is stored in the claim, so that every Locker decides alike.
//
// The note is stored with the claim. Other callers that claim the key get it until the key is settled or free. It is
// stored as given, so keep secrets out of it.
//
// After an error the caller does not have the key, and does not know what it holds. Redis did not answer in time, or
// answered with an error ([ErrForeign] if another program wrote the key). With [WithReplicas] a value is returned only
// once it is confirmed. [ErrSettled] means that a value is not confirmed, or still pending ([ErrPending]). The error
// wrapped with it is the reason.
//
// A claim must not stay after an error of Claim, nor return after [Lease.Release] or once the value of [Lease.Settle] has
// expired. So its release is retried in the background until Redis answers, for at most an hour. It is also sent again
// about 2 s, 15 s, 2 min and 10 min later if a command of the claim may still arrive, because a command in the buffer of
// a broken connection, or of a server that stands still, can be executed late. At most 65,536 claims with a hold and as
// many without are released in this way; for more, others of their kind are given up. [Locker.Stats] counts them, and
// [Locker.Close] tries once more and names those with a hold: one without is gone after a lease. This does not help if
// the process dies in the meantime: if Redis stalls and the process is killed, the claims with a hold in its open
// connections may become Abandoned although nothing ran. An operator finds them by [Locker.Scan], sees when they were
// claimed, and frees them.
//
// The lease's context carries the values of ctx but not its cancellation, so that a limit on waiting does not end the
// lease.
func (l *Locker) Claim(ctx context.Context, key string, note []byte, hold time.Duration) (claim Claim, err error) {
	if hold != 0 && (hold < time.Millisecond || hold > MaxHold) {
		return claim, fmt.Errorf("lock: claim: a hold of %v is not between a millisecond and ten years", hold)
	}
	if err = l.ready(ctx, "claim"); err != nil {
		return claim, err
	}
	opts := store.ClaimOptions{Note: note, Hold: hold.Truncate(time.Millisecond)}
	return l.granter.claim(ctx, l.namespace.Key(key), opts)
}

// Look returns what key holds, and never takes it. The State is [Free], [Held], [Abandoned] or [Settled]. Look takes
// one round trip. It is for a caller that must not begin the work, and needs the note or the value: [Locker.Inspect]
// returns neither, and [Locker.Wait] waits while the key is held.
//
// The errors are those of [Locker.Claim]. So is the rule of [WithReplicas]: a value is returned only once it is
// confirmed, which takes a second round trip. Look writes nothing else, except a value of this Locker
// that is pending ([ErrPending]).
func (l *Locker) Look(ctx context.Context, key string) (claim Claim, err error) {
	if err = l.ready(ctx, "look"); err != nil {
		return claim, err
	}
	return l.granter.look(ctx, l.namespace.Key(key), false)
}

// granter claims keys and looks at them, for the methods of a Locker and for its waiters. It makes a lease of a granted
// claim.
type granter struct {
	store   *store.Store
	leases  lease.Config  // shared by its leases
	backlog lease.Backlog // the values that its leases could not store yet
}

// claim takes key if it is free, and returns what it holds.
func (g *granter) claim(ctx context.Context, key store.Key, opts store.ClaimOptions) (claim Claim, err error) {
	start, id := time.Now(), lease.ID{Key: key, Token: store.NewToken(), Hold: opts.Hold, IsLock: opts.IsLock}
	if claim, err = g.settlePending(ctx, key, nil); err != nil || claim.State == Settled {
		return claim, err
	}
	e, err := g.store.Claim(ctx, key, id.Token, start, opts)
	if err != nil {
		return Claim{}, err
	}
	claim, id.MayReturn, id.Written = newClaim(key, &e), e.MayReturn, e.Written
	if e.State == store.Granted {
		if claim.Lease, err = g.newLease(ctx, id, e.Fence, start); err != nil {
			return Claim{}, err
		}
		if pending, err := g.settlePending(ctx, key, claim.Lease); err != nil || pending.State == Settled {
			return pending, err
		}
	}
	return claim, nil
}

// settlePending tries to store a value that is pending under key (ErrPending), so that this Locker does not grant the
// key once more. If the value is stored, settlePending returns it as Settled. If nothing is pending or another caller
// has the key, it returns the zero Claim. granted is nil, or a lease that was granted while the value became pending:
// that lease is then settled with the value.
func (g *granter) settlePending(ctx context.Context, key store.Key, granted *Lease) (claim Claim, err error) {
	var value []byte
	if granted != nil {
		value, err = g.backlog.StorePendingBy(background.WithoutEnd(ctx), key.Text, &granted.handle)
	} else {
		value, err = g.backlog.StorePending(ctx, key.Text)
	}
	switch {
	case err != nil:
		return claim, fmt.Errorf("lock: claim: %w, which is not stored yet: %w", ErrSettled, err)
	case value == nil:
		return claim, nil
	}
	e := store.ParseValue(bytes.Clone(value))
	return newClaim(key, &e), nil
}

// newLease returns the first handle on the lease of a claim that was granted. The operation began at start. If the
// reply took so long that the lease would be over, newLease has the claim released in the background and returns an
// error.
func (g *granter) newLease(ctx context.Context, id lease.ID, fence int64, start time.Time) (*Lease, error) {
	var both struct { // in one allocation
		core   lease.Core
		handle Lease
	}
	first := &both.handle
	first.store, first.core, first.fence = g.store, &both.core, fence
	if !both.core.Init(&g.leases, g.store, id, background.WithoutEnd(ctx), start, &first.handle) {
		g.store.KeepReleasing(store.Unneeded{Key: id.Key, Token: id.Token, HasHold: id.Hold > 0, MayReturn: id.MayReturn})
		return nil, fmt.Errorf("lock: claim: granted too late: %w", context.DeadlineExceeded)
	}
	return first, nil
}

// look returns what key holds, as claim does, and never takes the key. If the caller waits, it marks a claim, so that the
// end of that claim publishes a message.
func (g *granter) look(ctx context.Context, key store.Key, waits bool) (claim Claim, err error) {
	if claim, err = g.settlePending(ctx, key, nil); err != nil || claim.State == Settled {
		return claim, err
	}
	e, err := g.store.Look(ctx, key, waits)
	if err != nil {
		return Claim{}, err
	}
	return newClaim(key, &e), nil
}

// newClaim returns e as a Claim, without a Lease.
func newClaim(key store.Key, e *store.Entry) (claim Claim) {
	claim.State, claim.Key, claim.lasts = e.State, key.Text, e.Left
	switch claim.State {
	case Held, Abandoned:
		claim.ClaimedAt = e.At
		if !e.IsLock {
			claim.Note = e.Content
		}
	case Settled:
		claim.Value, claim.SettledAt = e.Content, e.At
	}
	return claim
}
