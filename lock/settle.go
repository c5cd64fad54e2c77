package lock

import (
	"context"
	"time"
)

// settlement is what Settle was asked for.
type settlement struct {
	locker *Locker
	ctx    context.Context // never done
	stored []byte          // the value with its head
	ttl    time.Duration
}

// settledBefore is what settle.lua answers when another handle has settled the lease with another value.
const settledBefore = "another Settle of this lease was first"

// settle tries once. It is not done as long as another try may succeed.
func (g *grant) settle(s settlement) (done bool, err error) {
	a := s.locker.settle(s.ctx, g.key, g.token, s.stored, s.ttl)

	g.mu.Lock()
	defer g.mu.Unlock()
	if a.err != nil && !a.foreign {
		return false, a.wrap("settle")
	}
	if string(a.text) == settledBefore {
		g.finish(context.Canceled)
		g.decide(nil)
		return true, ErrLost
	}
	if a.err != nil || a.standing(g.token) == others {
		g.finish(ErrLost)
		g.decide(ErrLost)
		return true, ErrLost
	}
	if g.insisting {
		g.settled = s.stored
	}
	g.finish(context.Canceled)
	g.decide(nil)
	return true, nil
}

// insist tries to settle again in the background, for one more lease. The renewals go on meanwhile.
func (g *grant) insist(s settlement) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.insisting || g.over || g.work.closed() {
		return
	}
	g.insisting, g.abandonAt = true, time.Time{}
	g.resume()
	g.work.run(func() {
		defer g.insisted() // also when a hook of the client ends this goroutine
		insist(g.work.ctx, time.Now().Add(g.ttl), func() bool {
			if g.isOver() {
				return true
			}
			done, _ := g.settle(s)
			return done
		})
	})
}

// resume renews the lease again if it is not renewed any more, and wanted after all. The caller holds mu.
func (g *grant) resume() {
	g.abandoned = false
	if g.renew && !g.renewing && !g.ended {
		g.renewing = true
		g.wakeAt(time.Now())
	}
}

// insisted ends the time for which a claim is kept alive for a Settle. A later one that fails has a time of its own.
func (g *grant) insisted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.insisting = false
	g.letRunOut()
}

// insist calls try after growing pauses, until it is done, or the time is up, or ctx is done.
func insist(ctx context.Context, until time.Time, try func() (done bool)) {
	const first, longest = 20 * time.Millisecond, time.Second
	for wait := first; time.Now().Before(until); wait = min(2*wait, longest) {
		if pause(ctx, wait/2+jitter(wait/2)) != nil || try() {
			return
		}
	}
}
