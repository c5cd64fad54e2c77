package system_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A message between a run and the database is lost: the table of "A message that is lost" in
// docs/guarantees.md, in both modes.
//
// fault: journal: reply of Begin, complete, COMMIT's request, COMMIT's reply or End lost
// fault: journal: database gone at Begin, after COMMIT
// fault: journal: COMMIT arrives late
// fault: journal: Redis forgot, anywhere
func TestLost(t *testing.T) {
	t.Parallel()
	eachServer(t, testLost)
}

func testLost(t *testing.T, server *dbtest.Server) {
	drops, cuts, holds, late := (*dbtest.Proxy).DropReply, (*dbtest.Proxy).CutBefore, (*dbtest.Proxy).HoldRequest, (*dbtest.Proxy).HoldReply
	for _, row := range []struct {
		lost      string
		elsewhere bool // the handler does not use InTx
		by        func(*dbtest.Proxy, dbtest.Match) *dbtest.Rule
		message   func(journalMode) dbtest.Match
		test      func(*losing, *testing.T, *dbtest.Rule)
	}{
		{"reply of Begin", false, drops, beginOf, (*losing).wantPaid},
		{"reply of Begin, effect elsewhere", true, drops, beginOf, (*losing).wantPaid},
		{"database gone at Begin", false, nil, nil, (*losing).databaseAtBegin},
		{"database gone at Begin, effect elsewhere", true, nil, nil, (*losing).databaseAtBegin},
		{"database gone at Begin, reply", false, late, beginOf, (*losing).databaseAtReplyOfBegin},
		{"request of complete", false, cuts, completeOf, (*losing).wantFailure},
		{"reply of complete", false, drops, completeOf, (*losing).wantFailure},
		{"COMMIT request", false, cuts, commitOf, (*losing).wantFailure},
		{"COMMIT reply", false, drops, commitOf, (*losing).wantPaid},
		{"COMMIT arrives late", false, (*dbtest.Proxy).Delay, commitOf, (*losing).commitLate},
		{"COMMIT sent, then database gone, committed", false, late, commitOf, (*losing).databaseAfterCommit},
		{"COMMIT sent, then database gone, not committed", false, holds, commitOf, (*losing).databaseBeforeCommit},
		{"End, request", true, holds, completeOf, (*losing).wantMadeUp},
		{"End, reply", true, late, completeOf, (*losing).wantMadeUp},
		{"End, and another process sweeps", true, holds, completeOf, (*losing).endAndSweep},
		{"Redis forgot", false, nil, nil, (*losing).redisForgot},
		{"Redis forgot, effect elsewhere", true, nil, nil, (*losing).redisForgot},
	} {
		t.Run(row.lost, func(t *testing.T) {
			t.Parallel()
			for name, s := range map[string]shop{
				"transactional": {Journal: transactional},
				"intent":        {Journal: intent},
				"alone":         {Journal: intent, Alone: true},
			} {
				if s.Alone && strings.HasPrefix(row.lost, "Redis") || s.Journal == transactional && strings.HasSuffix(row.lost, "sweeps") {
					continue // it has no Redis, or no rows to sweep
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					l := &losing{scene: newScene(t, server), mode: s.Journal, alone: s.Alone, elsewhere: row.elsewhere}
					if row.elsewhere {
						s.Provider = l.provider.url
					}
					l.customer = serve(t, l.proxied(s))
					var rule *dbtest.Rule
					if row.by != nil {
						l.lose = func() *dbtest.Rule { return row.by(l.dbProxy, row.message(l.mode)) }
						rule = l.lose()
					}
					row.test(l, t, rule)
				})
			}
		})
	}
}

// lostKey is the key of the only order.
const lostKey = "order-1"

// losing is a scene with one shop.
type losing struct {
	*scene
	mode      journalMode
	alone     bool
	elsewhere bool
	customer  customer
	lose      func() *dbtest.Rule // what is lost, once more
}

// want asks once more and checks the answer, and how many effects there are then.
func (l *losing) want(t *testing.T, want string, effects int) answer {
	t.Helper()
	got := l.customer.ask(t.Context(), lostKey)
	l.check(t, got, want, effects)
	return got
}

func (l *losing) check(t *testing.T, got answer, want string, effects int) {
	t.Helper()
	wantAnswer(t, "answer", got, want)
	l.wantEffects(t, lostKey, effects)
}

// wantReplay checks that a retry gets first's body, also after Redis has forgotten.
func (l *losing) wantReplay(t *testing.T, first answer) {
	t.Helper()
	for range 2 {
		if got := l.want(t, "201 replay", 1); got.body != first.body {
			t.Errorf("two bodies: %s and %s", first.body, got.body)
		}
		l.redis.FlushAll(t)
	}
}

// wantEventually asks until the answer is not that of a run under way.
func (l *losing) wantEventually(t *testing.T, want string, effects int) answer {
	t.Helper()
	var got answer
	await(t, want, func() bool {
		got = l.customer.ask(t.Context(), lostKey)
		return got.String() != "409 in-flight"
	})
	l.check(t, got, want, effects)
	return got
}

// wantPaid checks a run that succeeds although something is lost. If the machine is so busy that the database does not answer
// in 3 s, the run is refused without an effect, and another one is tried.
func (l *losing) wantPaid(t *testing.T, lost *dbtest.Rule) {
	var first answer
	await(t, "a run that is not refused", func() bool {
		first = l.customer.ask(t.Context(), lostKey)
		if first.String() == "503 store-unavailable" {
			l.wantEffects(t, lostKey, 0)
			lost = l.lose()
		}
		return first.String() != "503 store-unavailable" && first.String() != "409 in-flight"
	})
	lost.Wait(t)
	l.check(t, first, "201", 1)
	l.wantReplay(t, first)
}

func (l *losing) databaseAtBegin(t *testing.T, _ *dbtest.Rule) {
	l.dbProxy.Down()
	l.want(t, "503 store-unavailable", 0)
	await(t, "the release of the claim", func() bool { return !l.isClaimed(t) })
	l.dbProxy.Up()
	l.wantReplay(t, l.want(t, "201", 1))
}

// The row of an intent journal is stored, and undone when the database is back.
func (l *losing) databaseAtReplyOfBegin(t *testing.T, lost *dbtest.Rule) {
	got := l.customer.asks(t.Context(), lostKey)
	lost.Wait(t)
	l.dbProxy.Down()
	l.check(t, <-got, "503 store-unavailable", 0)
	l.dbProxy.Up()
	l.wantReplay(t, l.wantEventually(t, "201", 1))
}

// wantFailure checks a run whose transaction certainly did not commit. A transactional journal lets a retry run.
func (l *losing) wantFailure(t *testing.T, lost *dbtest.Rule) {
	first := l.want(t, "500", 0)
	lost.Wait(t)
	if l.mode == transactional {
		l.wantReplay(t, l.want(t, "201", 1))
		return
	}
	for range 2 {
		if got := l.want(t, "500 replay", 0); got.body != first.body {
			t.Errorf("two bodies: %s and %s", first.body, got.body)
		}
		l.redis.FlushAll(t)
	}
}

// The COMMIT arrives a second after its connection broke. The answer waits for it.
func (l *losing) commitLate(t *testing.T, late *dbtest.Rule) {
	got := l.customer.asks(t.Context(), lostKey)
	late.Wait(t)
	await(t, "the probe, which waits for the transaction", func() bool { return l.database.Waiting(t, l.db) > 0 })
	l.wantEffects(t, lostKey, 0)
	second := time.After(time.Second)
	select {
	case a := <-got:
		t.Errorf("got %v before the COMMIT has arrived", a)
	case <-second:
	}
	late.Lift()
	first := <-got
	l.check(t, first, "201", 1)
	l.wantReplay(t, first)
}

// wantUnknown lets the database be gone when rule has acted, and checks that the outcome is unknown.
func (l *losing) wantUnknown(t *testing.T, rule *dbtest.Rule, effects int) {
	t.Helper()
	started := time.Now()
	got := l.customer.asks(t.Context(), lostKey)
	rule.Wait(t)
	l.dbProxy.Down()
	l.check(t, <-got, "503 commit-unknown", effects)
	if took := time.Since(started); took < 3*time.Second {
		t.Errorf("the answer came after %v, want 3 s", took)
	}
	l.wantHeld(t, effects)
	l.dbProxy.Up()
	if !l.alone || effects == 0 { // without Redis the row alone tells, and it tells the truth at once
		l.want(t, "409 in-flight", effects)
	}
	l.elapseLease(t)
}

// wantHeld checks that a retry does not run while the database is gone. Without Redis nothing else could tell.
func (l *losing) wantHeld(t *testing.T, effects int) {
	t.Helper()
	want := "409 in-flight"
	if l.alone {
		want = "503 store-unavailable"
	}
	l.want(t, want, effects)
}

func (l *losing) databaseAfterCommit(t *testing.T, held *dbtest.Rule) {
	l.wantUnknown(t, held, 1)
	l.wantReplay(t, l.want(t, "201 replay", 1))
}

func (l *losing) databaseBeforeCommit(t *testing.T, held *dbtest.Rule) {
	l.wantUnknown(t, held, 0)
	if l.mode == transactional {
		l.wantReplay(t, l.want(t, "201", 1))
		return
	}
	l.want(t, "409 in-flight", 0)
	l.elapseLimit(t)
	l.wantEventually(t, "409 outcome-unknown", 0)
	l.sweepFree(t)
	l.wantReplay(t, l.wantEventually(t, "201", 1))
}

// wantMadeUp lets the database be gone at End.
func (l *losing) wantMadeUp(t *testing.T, end *dbtest.Rule) {
	got := l.customer.asks(t.Context(), lostKey)
	end.Wait(t)
	l.dbProxy.Down()
	first := <-got
	l.check(t, first, "201", 1)
	l.wantHeld(t, 1)
	l.dbProxy.Up()
	if again := l.wantEventually(t, "201 replay", 1); again.body != first.body {
		t.Errorf("two bodies: %s and %s", first.body, again.body)
	}
	l.wantReplay(t, first)
}

// The database is gone at End until the run's limit has passed. Another process sweeps first, and knows no response. The
// run's process still has it, and stores it when it can.
func (l *losing) endAndSweep(t *testing.T, end *dbtest.Rule) {
	got := l.customer.asks(t.Context(), lostKey)
	end.Wait(t)
	l.dbProxy.Down()
	first := <-got
	l.check(t, first, "201", 1)
	l.elapseLimit(t)
	l.sweep(t, func(ctx context.Context, u sqljournal.Unfinished) error {
		l.dbProxy.Up() // the End arrives while the row is handed out
		wantAnswer(t, "a retry while it is handed out", l.other(t).ask(ctx, lostKey), l.held())
		return u.Done(ctx, l.db, time.Hour, nil)
	})
	if l.alone {
		await(t, "201 replay", func() bool { return l.customer.ask(t.Context(), lostKey).String() == "201 replay" })
	}
	if again := l.wantEventually(t, "201 replay", 1); again.body != first.body {
		t.Errorf("two bodies: %s and %s", first.body, again.body)
	}
	l.wantReplay(t, first)
}

// held returns what a retry is answered by whose run has passed its limit. Redis may still have the run's claim.
func (l *losing) held() string {
	if l.alone {
		return "409 outcome-unknown"
	}
	return "409 in-flight"
}

// Redis forgets before each statement of a run and before Settle, and a duplicate comes at that moment.
func (l *losing) redisForgot(t *testing.T, _ *dbtest.Rule) {
	at := map[string]dbtest.Match{"Begin": beginOf(l.mode)}
	if l.elsewhere {
		at["End"] = completes[l.mode]
	} else {
		at["handler"], at["complete"], at["COMMIT"] = opens, completes[l.mode], commits
	}
	if l.elsewhere && l.mode == transactional {
		delete(at, "Begin") // an effect elsewhere is protected by Redis only
		delete(at, "End")
	}
	other := l.other(t)
	for arrow, match := range at {
		key := "order-" + arrow
		held := l.dbProxy.HoldRequest(match)
		l.forget(t, key, held.Wait, held.Lift, other)
	}
	held := l.redisProxy.HoldRequest(settles)
	l.forget(t, "order-Settle", func(t testing.TB) { held.Wait(t) }, held.Lift, other)
}

// other is another instance, past the proxies.
func (l *losing) other(t *testing.T) customer {
	t.Helper()
	s := shop{Journal: l.mode, Alone: l.alone}
	if l.elsewhere {
		s.Provider = l.provider.url
	}
	return serve(t, l.direct(s))
}

// forget lets Redis forget a run at an instant, when a duplicate comes. Whichever reaches the journal second may be told
// that the other is in flight, and so may be a retry until both have ended.
func (l *losing) forget(t *testing.T, key string, wait func(testing.TB), lift func(), other customer) {
	t.Helper()
	first := l.customer.asks(context.Background(), key)
	wait(t)
	l.redis.FlushAll(t)
	duplicate := other.asks(context.Background(), key)
	lift()
	body := ""
	check := func(a answer) {
		if a.status != http.StatusCreated || body != "" && a.body != body {
			t.Errorf("%s: %v: %s; before: %s", key, a, a.body, body)
		}
		body = a.body
	}
	for _, a := range []answer{<-first, <-duplicate} {
		if a.String() != "409 in-flight" {
			check(a)
		}
	}
	if body == "" {
		t.Errorf("%s: both were told that the other is in flight", key)
	}
	for _, c := range []customer{l.customer, other} {
		var retry answer
		await(t, "the end of both", func() bool {
			retry = c.ask(t.Context(), key)
			return retry.String() != "409 in-flight"
		})
		check(retry)
	}
	l.redis.FlushAll(t)
	wantAnswer(t, key+", in the end", l.customer.ask(t.Context(), key), "201 replay")
	l.wantEffects(t, key, 1)
}
