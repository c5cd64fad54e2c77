package background

import (
	"context"
	"sync/atomic"
	"time"
)

// Backoff yields growing pauses. Each is random between half of its bound and the bound. The first bound is 20 ms. It
// doubles with each pause, up to 1 s. The zero value is ready to use.
type Backoff struct{ last time.Duration }

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, 20*time.Millisecond), time.Second)
	return b.last/2 + Jitter(b.last/2)
}

// Room limits what waits in the background. Its methods may be called concurrently.
type Room struct {
	size int64
	used atomic.Int64
}

// NewRoom returns an empty Room of a size, in any unit.
func NewRoom(size int64) *Room { return &Room{size: size} }

// Take takes n of the Room, and returns a function that gives it back. It returns nil if there is too little left.
func (r *Room) Take(n int64) (free func()) {
	if r.used.Add(n) > r.size {
		r.used.Add(-n)
		return nil
	}
	return func() { r.used.Add(-n) }
}

// Turns are taken by those that retry, so that a server that recovers is not overrun.
type Turns struct {
	taken    chan struct{}
	patience time.Duration
}

// NewTurns returns n turns. A Close waits for a turn no longer than patience.
func NewTurns(n int, patience time.Duration) *Turns {
	return &Turns{taken: make(chan struct{}, n), patience: patience}
}

// Retry calls try after growing pauses, until try reports that it is done, or deadline is reached. Once ctx is done, it
// calls try one last time.
//
// After a try that is not done the turn lasts until the pause is over: during an outage the others wait. It ends at once
// if try reports that the server has answered.
func (t *Turns) Retry(ctx context.Context, deadline time.Time, try func() (done, answered bool)) {
	var pauses Backoff
	_ = Pause(ctx, pauses.Next())
	for {
		endTurn := t.take(ctx)
		last := ctx.Err() != nil
		if !time.Now().Before(deadline) {
			endTurn()
			return
		}
		done, answered := try()
		if done || last {
			endTurn()
			return
		}
		if answered {
			endTurn()
			endTurn = func() {}
		}
		_ = Pause(ctx, pauses.Next())
		endTurn()
	}
}

// take waits until one of the turns is free. Once ctx is done, it waits no longer than patience, because Close waits for
// all: the caller then goes on without a turn.
func (t *Turns) take(ctx context.Context) (endTurn func()) {
	endTurn = func() { <-t.taken }
	select {
	case t.taken <- struct{}{}:
		return endTurn
	case <-ctx.Done():
	}
	select {
	case t.taken <- struct{}{}:
		return endTurn
	case <-time.After(t.patience):
		return func() {}
	}
}
