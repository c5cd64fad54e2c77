package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// Resume takes over the lease of a lock from another process, which has sent it the key and the token ([Lease.Token]), for
// example a server that lets a worker do what it has acquired the lock for. In one step, Redis replaces the claim with
// one of this Locker, which has another token and, with [WithFencing], a greater fence. The key is never free in
// between, and callers that wait for it go on waiting. The new lease is as one of [Locker.Acquire]: it has the length of
// this Locker's leases ([WithTTL]), is renewed here, and has the owner of [NewOwnerContext].
//
// The old lease is lost then. Its Extend returns [ErrLost], and so do Release and Settle as long as another lease or value
// has the key. But its process learns of it only from the next renewal, as of any loss: see [Lease.Context]. So it must
// stop relying on the lease before it sends the token. Call Abandon then, after an Extend if what remains of the lease is
// too short for the other process to resume it. A holder that goes on renewing until then counts the old lease in
// [Stats].Lost, which alerts take for a fault. A Release would free the key.
//
// [ErrLost] means that the key does not hold the lock that token names: the lease is over, or was resumed before, or token is
// that of a [Locker.Claim], and so of packages middleware and once, or of a version of this package that had no Resume.
// [ErrForeign] is as for Claim; [ErrSettled], and the error of an owner, are as for TryAcquire. After these errors nothing has changed. After any other error the lease may have been taken over, and
// nobody has it: call Resume again, and if that returns ErrLost, the key is free within the length of a lease.
//
// With [WithReplicas] the new lease counts once enough replicas have it; after [ErrNotReplicated], too, it may have been
// taken over. Resume never joins a lease ([NewContext]); the handles that share the old lease lose it together. A
// lease of package lock/quorum cannot be resumed, because no single step would replace the claims of a majority.
func (l *Locker) Resume(ctx context.Context, key, token string) (*Lease, error) {
	if err := l.ready(ctx, "resume"); err != nil {
		return nil, err
	}
	owner, err := ownerOf(ctx)
	if err != nil {
		return nil, err
	}
	from, err := uuid.Parse(token)
	if err != nil {
		return nil, fmt.Errorf("%w: it has no such token", ErrLost)
	}
	start, id := time.Now(), lease.ID{Key: l.namespace.Key(key), Token: store.NewToken(), IsLock: true}
	switch claim, err := l.granter.settlePending(ctx, id.Key, nil); {
	case err != nil:
		return nil, err
	case claim.State == Settled:
		return nil, ErrLost
	}
	e, err := l.store.Resume(ctx, id.Key, from, id.Token, start, owner)
	if err != nil {
		return nil, err
	}
	resumed, err := l.granter.newLease(ctx, id, e.Fence, start)
	if err != nil {
		return nil, err
	}
	return l.held.add(resumed)
}
