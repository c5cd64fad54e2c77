package lock

import (
	"context"
	"fmt"
	"time"
)

// settlement is a value that a Settle is to leave behind.
type settlement struct {
	locker *Locker
	ctx    context.Context // never done
	stored []byte          // the value with its head
	called time.Time       // when Settle was first called: ttl counts from then
	ttl    time.Duration
}

// left returns how long the value is to stay if it is stored now.
func (s *settlement) left() time.Duration {
	return (s.ttl - time.Since(s.called)).Truncate(time.Millisecond)
}

// settledBefore is what settle.lua answers when another handle has settled the lease with another value.
const settledBefore = "another Settle of this lease was first"

// settle tries once, and leaves the rest to the background if that got no answer.
func (g *grant) settle(s settlement) error {
	done, err := g.trySettle(s, s.ttl)
	if !done && g.settleLater(s) {
		return fmt.Errorf("%w; %w", err, ErrPending)
	}
	return err
}

// trySettle tries once. It is not done as long as another try may succeed.
func (g *grant) trySettle(s settlement, ttl time.Duration) (done bool, err error) {
	a := s.locker.settle(s.ctx, g.key, g.token, s.stored, ttl)

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
	if g.late != nil {
		g.settled = s.stored
	}
	g.finish(context.Canceled)
	g.decide(nil)
	return true, nil
}

// settleLater goes on with a Settle in the background, and keeps the claim alive for it. It reports whether one goes on:
// not if the lease is over, the Locker is closed, or the value is larger than all that may wait.
func (g *grant) settleLater(s settlement) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.late != nil:
		return true
	case g.over:
		return false
	}
	late := s.locker.backlog.add(g.work.ctx, len(s.stored))
	if late == nil {
		g.letRunOut()
		return false
	}
	g.late, g.abandonAt = late, time.Time{}
	g.resume()
	g.work.run(func() {
		stored := false
		defer func() { // also when a hook of the client ends this goroutine
			g.endLate()
			s.locker.backlog.remove(late, stored)
		}()
		stored = g.keepSettling(s, late)
	})
	return true
}

// keepSettling tries a Settle again and again, until there is nothing left to try for. It reports whether the value was
// stored, or no longer has to be.
func (g *grant) keepSettling(s settlement, late *lateSettle) (stored bool) {
	end := s.called.Add(min(s.ttl, maxInsist))
	for wait := firstPause; ; wait = min(2*wait, longestSettlePause) {
		cut := pause(late.ctx, min(wait/2+jitter(wait/2), time.Until(end))) != nil // closed, given up, or over
		left := s.left()
		switch {
		case g.isOver():
			return true
		case cut && !g.work.closed(), left <= 0, !time.Now().Before(end):
			return false
		}
		if done, err := g.trySettle(s, left); done {
			return err == nil
		}
		if cut { // it was the last try, for Close
			return false
		}
	}
}

// resume renews the lease again if it is not renewed any more, and wanted after all. The caller holds mu.
func (g *grant) resume() {
	g.abandoned = false
	if g.renew && !g.renewing && !g.ended {
		g.renewing = true
		g.wakeAt(time.Now())
	}
}

// endLate ends the time for which a claim is kept alive for a Settle. A later one that fails has a time of its own.
func (g *grant) endLate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late.cancel()
	g.late = nil
	g.letRunOut()
}

const (
	firstPause         = 20 * time.Millisecond
	longestPause       = time.Second
	longestSettlePause = 30 * time.Second
)

// insist calls try after growing pauses, until it is done, or the time is up, or ctx is done.
func insist(ctx context.Context, until time.Time, try func() (done bool)) {
	for wait := firstPause; time.Now().Before(until); wait = min(2*wait, longestPause) {
		if pause(ctx, wait/2+jitter(wait/2)) != nil || try() {
			return
		}
	}
}
