package lock

import (
	"sync"
	"time"
)

// alarm calls a grant's tick. One that has never rung is used again: that it may still ring can then be ruled out.
type alarm struct {
	timer *time.Timer
	grant *grant
	rung  bool // perhaps; guarded by the grant's mu, which reset and stop need too
}

type alarms struct{ pool sync.Pool }

// set returns an alarm that rings after d.
func (as *alarms) set(g *grant, d time.Duration) *alarm {
	if a, ok := as.pool.Get().(*alarm); ok {
		a.grant = g
		a.timer.Reset(d)
		return a
	}
	a := &alarm{grant: g}
	a.timer = time.AfterFunc(d, func() { a.grant.tick() })
	return a
}

func (a *alarm) reset(d time.Duration) {
	a.rung = !a.timer.Reset(d) || a.rung
}

// stop lets an alarm ring no more. The caller must forget it.
func (as *alarms) stop(a *alarm) {
	if a.timer.Stop() && !a.rung {
		a.grant = nil
		as.pool.Put(a)
	}
}
