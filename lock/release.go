package lock

import (
	"context"
	"fmt"
	"time"
)

// free does what Release says. ctx is never done.
func (g *grant) free(ctx context.Context) error {
	g.mu.Lock()
	if g.decided {
		defer g.mu.Unlock()
		return g.verdict
	}
	first := !g.over
	g.mu.Unlock()

	done, err := g.tryFree(ctx)
	if !done && first && !g.work.closed() {
		g.work.run(func() {
			insist(g.work.ctx, g.keptUntil(), func() bool {
				done, _ := g.tryFree(ctx)
				return done
			})
		})
	}
	return err
}

// tryFree tries once. It is not done as long as nobody has confirmed it.
func (g *grant) tryFree(ctx context.Context) (done bool, err error) {
	g.mu.Lock()
	if g.decided {
		defer g.mu.Unlock()
		return true, g.verdict
	}
	// A release that arrived makes room for somebody else, whose claim is no loss of ours. But if the lease had run
	// out, or was lost, by the time of the first try, then it is.
	valid, mayBeFree := g.valid(), g.mayBeFree
	g.mayBeFree = mayBeFree || valid
	g.finish(context.Canceled)
	expiry := later(g.expiry, g.mayLast)
	g.mu.Unlock()

	a := g.keeper.giveBack(ctx, g.key, g.token, expiry)

	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case a.foreign:
		g.decide(fmt.Errorf("%w: %w", ErrLost, ErrForeign))
	case a.err != nil:
		return false, a.wrap("release")
	case a.standing(g.token) == others && !mayBeFree && !(a.unsure && valid):
		g.decide(ErrLost)
	default:
		g.decide(nil)
	}
	return true, g.verdict
}

// maxInsist bounds how long a Release is tried again.
const maxInsist = time.Hour

// keptUntil tells how long the key stays taken if nobody releases it, or how long that is worth trying.
func (g *grant) keptUntil() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	left := later(g.expiry, g.mayLast).Sub(now) + g.mayHold
	return now.Add(min(left, maxInsist))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// decide says what Release answers from now on. The caller holds mu.
func (g *grant) decide(verdict error) {
	if !g.decided {
		g.decided, g.verdict = true, verdict
	}
}
