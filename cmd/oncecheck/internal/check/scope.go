package check

import "github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"

// asUser2 returns the operation as a request of the second user.
func asUser2(t *T, op ask.Operation) ask.Request { return t.s.asUser2(t.s.request(op), op) }

// wantUser2 ends the check if the second user can do nothing, and reports whether their effects are counted. Those that are may
// be the first user's alone: then a response of the first user's kind, with an id in its JSON, shows that the request ran.
func wantUser2(t *T) (counted bool) {
	return memo(t, "user 2", func() bool {
		w := t.Watch()
		e := t.s.sendPatiently(t.ctx, asUser2(t, t.s.operation()))
		t.skipIf(!e.Success(), "the second user can do nothing at all: %s", e)
		isUsual := e.Response.Status == t.s.usual
		switch counted := t.s.countsEffects(); {
		case counted && w.Effects(1) > 0:
			return true
		case isUsual && (!counted || t.s.ids.inJSON().areIn(e.Response)):
			return false
		}
		t.NotAsked("the second user may do nothing: %s, and no effect or response like the first user's", e)
		return false
	})
}

// wantEqual ends the check if the second user gets no response of their own to the operation under another key either: then
// it is not for the key.
func wantEqual(t *T, op ask.Operation, first ask.Exchange) {
	op.Key = ask.UUID()
	if e := t.s.sendPatiently(t.ctx, asUser2(t, op)); !e.Success() || isStored(t, first, e) {
		t.NotAsked("the second user gets no response of their own to the first user's request under another key either: %s", e)
	}
}

// wantOwn fails the check unless the second user's request was a success of its own. The watch began before the first's.
func wantOwn(t *T, op ask.Operation, first, other ask.Exchange, w *watch) {
	got := ""
	switch {
	case !other.Success():
		got = other.String()
	case isStored(t, first, other):
		got = "the first user's response"
	case wantUser2(t) && !t.s.equalIsOne && w.try(2, first, other).effects < 2:
		got = "a success that did nothing"
	default:
		return
	}
	wantEqual(t, op, first)
	t.Failf("a success of the second user's own", "%s", got)
}

func scopeUser(t *T) {
	wantUser2(t)
	op := t.s.operation()
	r := t.s.request(op)
	first, rested, other := t.First(r), t.Rest(r), t.SendPatiently(asUser2(t, op))
	if isStored(t, first, other) {
		wantEqual(t, op, first)
		t.Failf("a refusal, or a response of their own", "the first user's response")
	}
	wantRested(t, rested, other)
}

func scopeUserRuns(t *T) {
	wantUser2(t)
	op, w := t.s.operation(), t.Watch()
	first := t.Stored(t.s.request(op))
	other := t.SendPatiently(asUser2(t, op))
	wantOwn(t, op, first, other, w)
	if again := t.Rest(asUser2(t, op)); again.Success() && !again.Response.SameBody(other.Response) {
		t.Failf("the second user's response again", "another response")
	}
}

func scopeUserInFlight(t *T) {
	wantUser2(t)
	var op ask.Operation
	all, w := during(t, func(running ask.Operation, r ask.Request) []ask.Request {
		op = running
		return []ask.Request{t.s.asUser2(r, op)}
	})
	one, other := all[0], all[1]
	t.skipIf(!one.Success(), "the first user's request was no success: %s", one)
	wantOwn(t, op, one, other, w)
}

func scopeRoute(t *T) {
	onRoute := func(_ *T, op ask.Operation, r ask.Request) ask.Request { return at(r, t.s.OtherURL, op) }
	op := t.s.operation()
	e := t.s.sendPatiently(t.ctx, onRoute(t, op, t.s.request(op)))
	t.skipIf(!e.Success() || isElsewhere(t.s.usual, e), "a request to -other-url under a key of its own was no success: %s", e)
	notStored("the stored response of another route", onRoute)(t)
}

// isElsewhere reports whether a success sends the client to another place, such as a login, and usual does not.
func isElsewhere(usual int, e ask.Exchange) bool { return usual < 300 && e.Response.Status >= 300 }
