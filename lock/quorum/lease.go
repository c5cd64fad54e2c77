package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// Lease is the holder's side of the claims on a majority of the masters. Each claim is renewed on its own until the
// lease is released or lost. The methods of a Lease are safe for concurrent use.
//
// A Lease is valid while a majority of its claims is. A claim is valid for its length ([lock.WithTTL]) less one percent and
// two milliseconds, counted from before it was sent or renewed. At every moment at most one caller has valid claims on
// a majority, because two majorities share a master.
type Lease struct {
	quorum *Quorum
	ctx    context.Context         // done when the lease is over, see leaseContext
	cancel context.CancelCauseFunc // of ctx

	claims []*claim // one for each master

	mu    sync.Mutex
	begun bool // guarded by mu: TryAcquire has been granted the lease, and check may end it
}

// claim is the claim on one master. A goroutine that does not hold Lease.mu reads lease and err once answered is
// closed.
type claim struct {
	locker   *lock.Locker
	answered chan struct{}
	lease    *lock.Lease // nil until it is granted
	err      error       // why it was not granted: ErrHeld if another caller holds the key
}

// newLease returns a Lease whose claims are not sent yet. Its context carries the values of ctx.
func newLease(ctx context.Context, q *Quorum) *Lease {
	l := &Lease{quorum: q}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	for _, locker := range q.lockers {
		l.claims = append(l.claims, &claim{locker: locker, answered: make(chan struct{})})
	}
	return l
}

// Context returns a context that is done when the lease is over. Its cause is [context.Canceled] after Release, and
// [lock.ErrLost] when no majority of the claims is valid any more: it is done before a majority of the servers lets the
// key go by expiry. If a server loses the claim in another way, the next renewal shows that, within a third of the
// length of a lease. It carries the values of the context with which the key was taken, but not its cancellation.
//
// Err and Done of this context never miss the end of a lease: see [lock.Lease.Context].
func (l *Lease) Context() context.Context { return (*leaseContext)(l) }

// Err returns nil until Context is done, and then its cause. Called past Until, it ends the lease first.
func (l *Lease) Err() error {
	if l.ctx.Err() == nil {
		l.check()
	}
	return context.Cause(l.ctx)
}

// leaseContext is the context of a Lease. Each method that tells whether it is done calls Lease.Err first.
type leaseContext Lease

func (c *leaseContext) Deadline() (deadline time.Time, ok bool) { return c.ctx.Deadline() }

func (c *leaseContext) Done() <-chan struct{} {
	_ = (*Lease)(c).Err()
	return c.ctx.Done()
}

func (c *leaseContext) Err() error {
	_ = (*Lease)(c).Err()
	return c.ctx.Err()
}

// Value finds values, and for package context, with an *int as the key, the nearest parent that can be cancelled. Before
// Go 1.26 context.Cause calls it instead of Err.
func (c *leaseContext) Value(key any) any {
	if _, ok := key.(*int); ok {
		_ = (*Lease)(c).Err()
	}
	return c.ctx.Value(key)
}

// String keeps fmt from reading fields that another goroutine may be writing.
func (*leaseContext) String() string { return "quorum.Lease.Context" }

// Until returns the time until which the lease is valid if no further renewal succeeds: until then a majority of the
// claims is. It has a monotonic clock reading. It is the zero time if the lease was released or lost before its time.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ends []time.Time
	for _, c := range l.claims {
		if c.lease == nil {
			continue
		}
		end := c.lease.Until()
		ranOut := !time.Now().Before(end)
		if ranOut || c.lease.Err() == nil { // not lost before its time
			ends = append(ends, end)
		}
	}
	if len(ends) < l.quorum.size() {
		return time.Time{}
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends[len(ends)-l.quorum.size()]
}

// ask sends one claim. Every master gets its claim, even a slow one after TryAcquire has returned: each claim makes the
// lease safer.
func (l *Lease) ask(c *claim, key string) {
	granted, ok, err := c.locker.TryAcquire(context.WithoutCancel(l.ctx), key)
	if !ok && err == nil {
		err = lock.ErrHeld
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(c.answered)
	c.lease, c.err = granted, err
	if !ok {
		return
	}
	context.AfterFunc(granted.Context(), l.check)
	if l.ctx.Err() != nil {
		granted.Abandon()
	}
}

// begin lets check end the lease when no majority of its claims is valid, and calls check.
func (l *Lease) begin() {
	l.mu.Lock()
	l.begun = true
	l.mu.Unlock()
	l.check()
}

// check ends the lease if no majority of its claims is valid any more. It is called when a claim has ended, and by Err.
func (l *Lease) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	valid := 0
	for _, c := range l.claims {
		if c.lease != nil && c.lease.Err() == nil {
			valid++
		}
	}
	if l.begun && valid < l.quorum.size() {
		l.end(lock.ErrLost)
	}
}

// end ends the lease and the renewals of its claims, which stay until they are released or run out. The caller holds
// mu.
func (l *Lease) end(cause error) {
	l.cancel(cause)
	for _, c := range l.claims {
		if c.lease != nil {
			c.lease.Abandon()
		}
	}
}

// Extend extends every claim to at least d from now: see [lock.Lease.Extend]. It returns as soon as a majority is
// extended. The other commands go on after that, so that slow masters keep the claim too.
//
// [lock.ErrLost] means that the lease is over. After any other error some claims may be extended and others not. If ctx
// is the context of another lease, the error may wrap [lock.ErrLost] as well: Err tells whether this lease is over.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(lock.ErrLost) })()
	if l.Err() != nil {
		return lock.ErrLost
	}
	err := l.onMajority(ctx, "extend", func(ctx context.Context, claim *lock.Lease) error { return claim.Extend(ctx, d) })
	if err == lock.ErrLost { // not the cause of ctx, which may be ErrLost too
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(lock.ErrLost)
	}
	return err
}

// Release frees the key on every master and ends the lease. It returns as soon as a majority has answered, and may be
// called again.
//
// Release returns nil if the key is free on a majority, and [lock.ErrLost] if a majority was lost to other holders:
// both may have run. After any other error the key may be free or not. On each master that fails, the release is
// retried in the background until the claim would have run out.
//
// Release ignores the cancellation and the deadline of ctx, and uses only its values. It returns within twice the time
// for one operation ([lock.WithOpTimeout]): the claim on a slow master may still be in flight.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	l.end(context.Canceled)
	l.mu.Unlock()
	return l.onMajority(context.WithoutCancel(ctx), "release", func(ctx context.Context, claim *lock.Lease) error {
		return claim.Release(ctx)
	})
}

// onMajority calls do for all claims at the same time, and for a claim without a reply as soon as its reply arrives. It
// returns nil as soon as do has succeeded on a majority of the masters, and ErrLost as soon as a majority has lost the
// claim or has not granted it. It returns an error if the results of all masters show neither, or if ctx is done. No
// call of do is cancelled.
func (l *Lease) onMajority(
	ctx context.Context, operation string, do func(context.Context, *lock.Lease) error,
) error {
	results := make(chan error, len(l.claims))
	for _, c := range l.claims {
		c.locker.Go(func(context.Context) {
			<-c.answered
			if c.lease == nil {
				results <- c.err
				return
			}
			results <- do(context.WithoutCancel(ctx), c.lease)
		})
	}
	size, done, lost, failed := l.quorum.size(), 0, 0, []error(nil)
	for range l.claims {
		var err error
		select {
		case err = <-results:
		case <-ctx.Done():
			return fmt.Errorf("quorum: %s: %w", operation, context.Cause(ctx))
		}
		switch {
		case err == nil:
			done++
		case errors.Is(err, lock.ErrLost), errors.Is(err, lock.ErrHeld):
			lost++
		default:
			failed = append(failed, err)
		}
		switch size {
		case done:
			return nil
		case lost:
			return lock.ErrLost
		}
	}
	return fmt.Errorf("quorum: %s: %w", operation, noMajority(failed))
}
