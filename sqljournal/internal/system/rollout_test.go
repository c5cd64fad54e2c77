package system_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// rollout are the steps of the rollout of a journal. Instances of neighbouring steps stand beside each other.
func rollout(mode journalMode) []shop {
	return []shop{{AtMost: true}, {AtMost: true, Journal: mode}, {Journal: mode}}
}

// Instances of one step, or of neighbouring ones, stand on one Redis and one database, in both modes of the journal. The first one
// is held before its transaction and goes on later, or is killed before its COMMIT, or is killed before Settle. The second one gets
// the retry, at once, after the lease or, if both have the journal, also after Redis has forgotten everything. There is at most one
// effect, whichever of the two is the first.
//
// fault: journal: rollout, instances with and without it beside each other, one killed
// fault: journal: rollout, Redis forgot
func TestRollout(t *testing.T) {
	t.Parallel()
	server := dbtest.Own(t, dbtest.KindPostgreSQL).Server()
	for _, mode := range []journalMode{transactional, intent} {
		for first := range rollout(mode) {
			t.Run(fmt.Sprint(mode, ", step ", first+1), func(t *testing.T) {
				t.Parallel()
				p := pairing{scene: newScene(t, server)}
				for i, s := range rollout(mode) {
					if i == first {
						p.first = p.proxied(s)
					}
					if min(first, i)+1 >= max(first, i) {
						p.seconds = append(p.seconds, second{serve(t, p.direct(s)), first*i > 0})
					}
				}
				p.overtake(t)
				p.killBefore(t, "COMMIT", 0)
				p.killBefore(t, "Settle", 1)
			})
		}
	}
}

// second is the instance that gets the retry.
type second struct {
	customer
	mayForget bool // it and the first have the journal
}

// pairing is a first instance with each that may stand beside it.
type pairing struct {
	*scene
	first   shop
	seconds []second
}

// each calls f for each retry: first those while Redis remembers, and then the others.
func (p *pairing) each(t *testing.T, what string, f func(s second, key string, forgets bool)) {
	t.Helper()
	for _, forgets := range []bool{false, true} {
		for i, s := range p.seconds {
			if !forgets || s.mayForget {
				f(s, fmt.Sprintf("%s, %d, forgets=%t", what, i, forgets), forgets)
			}
		}
	}
}

// overtake holds a run of the first instance before its transaction, and lets it go on when the second has answered.
func (p *pairing) overtake(t *testing.T) {
	t.Helper()
	customer := serve(t, p.first)
	p.each(t, "overtaken", func(s second, key string, forgets bool) {
		held := p.dbProxy.HoldRequest(opens)
		first := customer.asks(context.Background(), key)
		held.Wait(t)
		if forgets {
			p.redis.FlushAll(t)
		}
		retry := s.ask(t.Context(), key)
		if !forgets {
			wantAnswer(t, "a retry while the first runs", retry, "409 in-flight")
		}
		held.Lift()
		<-first
		p.wantEffects(t, key, 1)
	})
}

// killBefore kills the first instance while it has a run for each case at an arrow, and sends the retries.
func (p *pairing) killBefore(t *testing.T, arrow string, effects int) {
	t.Helper()
	victim, customer := run(t, p.first)
	wantAnswer(t, "another order", customer.ask(t.Context(), arrow+" 0"), "201") // it loads the scripts
	hold := func() (arrived func()) {
		held := p.dbProxy.HoldRequest(commits)
		return func() { held.Wait(t) }
	}
	if arrow == "Settle" {
		held := p.redisProxy.HoldRequest(settles) // it holds all of them
		hold = func() func() { return func() { held.Wait(t) } }
	}
	var broken []<-chan answer
	p.each(t, arrow, func(_ second, key string, _ bool) {
		arrived := hold()
		broken = append(broken, customer.asks(context.Background(), key))
		arrived()
	})
	victim.Kill(t)
	p.cut()
	for _, first := range broken {
		if a := <-first; a.String() != "503 commit-unknown" { // its COMMIT was held for 3 s, on a busy machine
			wantAnswer(t, "a request to the process that is killed", a, "broken")
		}
	}
	p.elapseLease(t)
	p.each(t, arrow, func(s second, key string, forgets bool) {
		if forgets {
			p.redis.FlushAll(t)
		}
		p.wantEffects(t, key, effects)
		s.ask(t.Context(), key)
		if n := p.effects(t, key); n > 1 {
			t.Errorf("%s: %d effects", key, n)
		}
	})
}
