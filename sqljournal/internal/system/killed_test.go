package system_test

import (
	"context"
	"testing"

	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A process is killed at each arrow of a run, and another one answers the retries: the table of "A process that dies"
// in docs/guarantees.md. A case has the number of effects after the kill, and then each event and what a retry gets.
//
// fault: journal: process killed -9 before Begin, the handler, complete, COMMIT, End, Settle, the response
func TestKilled(t *testing.T) {
	t.Parallel()
	eachServer(t, testKilled)
}

func testKilled(t *testing.T, server *dbtest.Server) {
	shops := map[string]shop{
		"transactional InTx":       {Journal: transactional},
		"intent InTx":              {Journal: intent},
		"intent, effect elsewhere": {Journal: intent, Provider: "elsewhere"},
		"alone InTx":               {Journal: intent, Alone: true},
		"alone, effect elsewhere":  {Journal: intent, Alone: true, Provider: "elsewhere"},
		"WithAtMostOnce":           {AtMost: true, Provider: "elsewhere"},
		"default":                  {Provider: "elsewhere"},
	}
	const (
		held       = "409 in-flight"
		unknown    = "409 outcome-unknown"
		unstored   = "409 response-not-stored"
		paid       = "201"
		replay     = "201 replay"
		lease      = "the lease passes"
		limit      = "the limit passes"
		free, done = "swept Free", "swept Done"
		forgets    = "Redis forgets"
	)
	again := []string{held, lease, paid}
	open := []string{held, lease, held, limit, unknown, free, paid}
	openAlone := []string{held, limit, unknown, free, paid}
	stored := []string{held, lease, replay, forgets, replay}
	for _, cell := range []struct {
		before, shop string
		effects      int // of the run that was killed
		then         []string
		total        int // effects in the end
	}{
		{"Begin", "transactional InTx", 0, again, 1},
		{"Begin", "intent InTx", 0, again, 1},
		{"Begin", "intent, effect elsewhere", 0, again, 1},

		{"Begin", "alone InTx", 0, []string{paid}, 1},
		{"Begin", "alone, effect elsewhere", 0, []string{paid}, 1},

		{"handler", "transactional InTx", 0, again, 1},
		{"handler", "intent InTx", 0, open, 1},
		{"handler", "intent, effect elsewhere", 0, open, 1},
		{"handler", "alone InTx", 0, openAlone, 1},
		{"handler", "alone, effect elsewhere", 0, openAlone, 1},
		{"handler", "WithAtMostOnce", 0, []string{held, lease, unknown}, 0},
		{"handler", "default", 0, again, 1},

		{"complete", "transactional InTx", 0, again, 1},
		{"complete", "intent InTx", 0, open, 1},
		{"complete", "alone InTx", 0, openAlone, 1},
		{"COMMIT", "transactional InTx", 0, again, 1},
		{"COMMIT", "intent InTx", 0, open, 1},
		{"COMMIT", "alone InTx", 0, openAlone, 1},

		{"End", "intent, effect elsewhere", 1, []string{held, lease, held, limit, unknown, done, unstored, forgets, unstored}, 1},
		{"End", "alone, effect elsewhere", 1, []string{held, limit, unknown, done, unstored}, 1},
		{"End", "WithAtMostOnce", 1, []string{held, lease, unknown, forgets, paid}, 2},
		{"End", "default", 1, []string{held, lease, paid}, 2},

		{"Settle", "transactional InTx", 1, stored, 1},
		{"Settle", "intent InTx", 1, stored, 1},
		{"Settle", "intent, effect elsewhere", 1, stored, 1},

		{"response", "transactional InTx", 1, []string{replay, forgets, replay}, 1},
		{"response", "intent InTx", 1, []string{replay, forgets, replay}, 1},
		{"response", "intent, effect elsewhere", 1, []string{replay, forgets, replay}, 1},
		{"response", "alone InTx", 1, []string{replay}, 1},
		{"response", "alone, effect elsewhere", 1, []string{replay}, 1},
		{"response", "WithAtMostOnce", 1, []string{replay, forgets, paid}, 2},
		{"response", "default", 1, []string{replay, forgets, paid}, 2},
	} {
		t.Run(cell.before+"/"+cell.shop, func(t *testing.T) {
			t.Parallel()
			c := newScene(t, server)
			s := shops[cell.shop]
			if s.Provider != "" {
				s.Provider = c.provider.url
			}
			victim, customer := run(t, c.proxied(s))
			wantAnswer(t, "another order", customer.ask(t.Context(), "order-0"), "201") // it loads the scripts
			arrived := c.holdBefore(t, cell.before, s)
			const key = "order-1"
			first := customer.asks(context.Background(), key)
			arrived()
			victim.Kill(t)
			c.cut()
			c.provider.release()
			wantAnswer(t, "the request to the process that is killed", <-first, "broken")
			c.wantEffects(t, key, cell.effects)

			other := serve(t, c.direct(s))
			body, elapsed := "", false
			for _, step := range cell.then {
				switch step {
				case lease:
					c.elapseLease(t)
					elapsed = true
				case limit:
					c.elapseLimit(t)
				case free:
					c.sweepFree(t)
				case done:
					c.sweepDone(t)
				case forgets:
					c.redis.FlushAll(t)
				default:
					got := other.ask(t.Context(), key)
					wantAnswer(t, "a retry", got, step)
					switch {
					case step == replay && body != "" && got.body != body:
						t.Errorf("two bodies: %s and %s", body, got.body)
					case step == paid, step == replay:
						body = got.body
					case elapsed && s.Journal != noJournal:
						await(t, "the release of the retry's claim", func() bool { return !c.isClaimed(t) })
					}
				}
			}
			c.wantEffects(t, key, cell.total)
		})
	}
}

// holdBefore makes a run stop before an arrow. The function that it returns waits for that.
func (c *scene) holdBefore(t *testing.T, arrow string, s shop) func() {
	t.Helper()
	isElsewhere := s.Provider != ""
	at := map[string]dbtest.Match{"Begin": beginOf(s.Journal), "handler": opens, "complete": completes[s.Journal], "COMMIT": commits, "End": completes[s.Journal]}
	hold := c.dbProxy.HoldRequest
	switch {
	case arrow == "handler" && isElsewhere:
		asked := c.provider.holdRequests()
		return func() { <-asked }
	case arrow == "Settle", arrow == "End" && s.Journal == noJournal:
		rule := c.redisProxy.HoldRequest(settles)
		return func() { rule.Wait(t) }
	case arrow == "response" && !s.Alone:
		rule := c.redisProxy.HoldReply(settles)
		return func() { rule.Wait(t) }
	case arrow == "response" && isElsewhere:
		hold, at[arrow] = c.dbProxy.HoldReply, completes[intent]
	case arrow == "response":
		hold, at[arrow] = c.dbProxy.HoldReply, commits
	}
	rule := hold(at[arrow])
	return func() { rule.Wait(t) }
}
