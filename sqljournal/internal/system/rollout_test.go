package system_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// kinds are the instances that may stand beside each other during a rollout. A pair is named in this order.
var kinds = []struct {
	name            string
	journal, atMost bool
}{
	{name: "none"},
	{name: "WithAtMostOnce", atMost: true},
	{name: "both", journal: true, atMost: true},
	{name: "journal", journal: true},
}

// safePairs are the claims about two instances of these kinds: there is one effect, also when one of them is killed, as
// long as Redis forgets nothing, or even if it does.
//
// The rule of the rollout is the order of kinds: WithAtMostOnce everywhere, then both everywhere, then the journal alone.
// From WithAtMostOnce on, all that stand beside each other are safe while Redis remembers; from both on, always.
var safePairs = map[bool]map[string]bool{ // by whether Redis forgets
	false: {
		"WithAtMostOnce, WithAtMostOnce": true,
		"WithAtMostOnce, both":           true,
		"both, both":                     true,
		"both, journal":                  true,
		"journal, journal":               true,
	},
	true: {
		"both, both":       true,
		"both, journal":    true,
		"journal, journal": true,
	},
}

// Two instances of all kinds stand on one Redis and one database, in both modes of the journal. The first one is held
// before its transaction and goes on later, or is killed before its COMMIT, or is killed before Settle. The second one
// gets the retry, at once, after the lease, or after Redis has forgotten everything. A pair is unsafe if there are two
// effects in any of these cases, whichever of the two is the first.
//
// fault: journal: rollout, instances with and without it beside each other, one killed
// fault: journal: rollout, Redis forgot
func TestRollout(t *testing.T) {
	t.Parallel()
	server := dbtest.Own(t, dbtest.KindPostgreSQL).Server()
	for _, mode := range []journalMode{transactional, intent} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			found := rolledOut{most: map[bool]map[string]int{false: {}, true: {}}}
			t.Run("first", func(t *testing.T) {
				for first, kind := range kinds {
					t.Run(kind.name, func(t *testing.T) {
						t.Parallel()
						rollOut(t, server, mode, first, &found)
					})
				}
			})
			if !t.Failed() {
				found.check(t)
			}
		})
	}
}

// rolledOut has the most effects that any case has led to.
type rolledOut struct {
	mu   sync.Mutex
	most map[bool]map[string]int // by whether Redis has forgotten, and the pair
}

func (f *rolledOut) add(forgets bool, first, second, effects int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pair := kinds[min(first, second)].name + ", " + kinds[max(first, second)].name
	f.most[forgets][pair] = max(f.most[forgets][pair], effects)
}

func (f *rolledOut) check(t *testing.T) {
	t.Helper()
	for forgets, most := range f.most {
		if len(most) != 10 {
			t.Errorf("%d pairs, want 10", len(most))
		}
		for pair, effects := range most {
			want := 2
			if safePairs[forgets][pair] {
				want = 1
			}
			if effects != want {
				t.Errorf("%s, Redis forgets: %t: got %d effects, want %d", pair, forgets, effects, want)
			}
		}
	}
}

// pairing is a first instance with its retries at each kind of a second one.
type pairing struct {
	*scene
	first   int // of kinds
	proxied shop
	seconds []customer // by kind
	found   *rolledOut
}

func rollOut(t *testing.T, server *dbtest.Server, mode journalMode, first int, found *rolledOut) {
	t.Helper()
	c := newScene(t, server)
	p := pairing{scene: c, first: first, found: found}
	for i, kind := range kinds {
		s := shop{AtMost: kind.atMost}
		if kind.journal {
			s.Journal = mode
		}
		p.seconds = append(p.seconds, serve(t, c.direct(s)))
		if i == first {
			p.proxied = c.proxied(s)
		}
	}
	p.overtake(t)
	p.killBefore(t, "COMMIT", 0, func() func() {
		held := c.dbProxy.HoldRequest(commits)
		return func() { held.Wait(t) }
	})
	var held *redistest.Rule // it holds all of them
	p.killBefore(t, "Settle", 1, func() func() {
		if held == nil {
			held = c.redisProxy.HoldRequest(settles)
		}
		return func() { held.Wait(t) }
	})
}

// overtake holds a run of the first instance before its transaction, and lets it go on when the second has answered.
func (p *pairing) overtake(t *testing.T) {
	t.Helper()
	customer := serve(t, p.proxied)
	for second, other := range p.seconds {
		for _, forgets := range []bool{false, true} {
			key := p.key("overtaken", second, forgets)
			held := p.dbProxy.HoldRequest(opens)
			first := customer.asks(context.Background(), key)
			held.Wait(t)
			if forgets {
				p.redis.FlushAll(t)
			}
			retry := other.ask(t.Context(), key)
			if !forgets {
				wantAnswer(t, "a retry while the first runs", retry, "409 in-flight")
			}
			held.Lift()
			<-first
			p.found.add(forgets, p.first, second, p.effects(t, key))
		}
	}
}

// killBefore kills the first instance while it has a run for each case at an arrow, and sends the retries.
func (p *pairing) killBefore(t *testing.T, arrow string, effects int, hold func() (arrived func())) {
	t.Helper()
	victim, customer := run(t, p.proxied)
	wantAnswer(t, "another order", customer.ask(t.Context(), arrow+" 0"), "201") // it loads the scripts
	var broken []<-chan answer
	for second := range p.seconds {
		for _, forgets := range []bool{false, true} {
			arrived := hold()
			broken = append(broken, customer.asks(context.Background(), p.key(arrow, second, forgets)))
			arrived()
		}
	}
	victim.Kill(t)
	p.cut()
	for _, first := range broken {
		if a := <-first; a.String() != "503 commit-unknown" { // its COMMIT was held for 3 s, on a busy machine
			wantAnswer(t, "a request to the process that is killed", a, "broken")
		}
	}
	for _, forgets := range []bool{false, true} {
		if forgets {
			p.redis.FlushAll(t)
		} else {
			p.elapseLease(t)
		}
		for second, other := range p.seconds {
			key := p.key(arrow, second, forgets)
			p.wantEffects(t, key, effects)
			other.ask(t.Context(), key)
			p.found.add(forgets, p.first, second, p.effects(t, key))
		}
	}
}

func (p *pairing) key(arrow string, second int, forgets bool) string {
	return fmt.Sprintf("%s, then %s, forgets=%t", arrow, kinds[second].name, forgets)
}
