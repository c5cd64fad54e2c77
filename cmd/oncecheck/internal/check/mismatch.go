package check

import (
	"bytes"
	"cmp"
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// mismatch is an operation, its key at rest with another body, and the operation once more.
type mismatch struct {
	first, rested, other, original ask.Exchange
	ran, atLast                    int // the effects of other, and of other and original
}

// show shows the operation, until it came to rest if that took a while, and what followed.
func (m *mismatch) show(t *T, followed ...ask.Exchange) {
	shown := []ask.Exchange{m.first}
	if m.rested.Request.Waited >= firstWait {
		shown = append(shown, m.rested)
	}
	t.Show(append(shown, followed...)...)
}

// otherBody returns the operation's key with another body.
func otherBody(t *T, op ask.Operation) ask.Request {
	r := t.s.request(op)
	same, another := r.Body, t.s.operation()
	another.Key = op.Key
	if r.Body = []byte(another.Expand(cmp.Or(t.s.OtherBody, t.s.Body))); bytes.Equal(r.Body, same) {
		t.NotAsked("the body has no {{n}}: give -other-d, the body of another request")
	}
	return r
}

func askMismatch(t *T) *mismatch {
	m := memo(t, "mismatch", func() *mismatch {
		op := t.s.operation()
		r, other := t.s.request(op), otherBody(t, op)
		m := &mismatch{first: t.First(r)}
		m.rested = t.Rest(r)
		w := t.Watch(m.first, m.rested)
		m.other = t.Send(other)
		m.ran = w.try(successes(m.other), m.other).effects
		m.original = t.Rest(r)
		m.atLast = w.try(m.ran, m.original).effects
		t.refused("reused", m.other)
		return m
	})
	m.show(t, m.other)
	return m
}

func mismatchBody(t *T) {
	if m := askMismatch(t); m.other.Success() {
		t.failIf(isStored(t, m.first, m.other), "a refusal", "the stored response of another request")
		t.Failf("a refusal", "%s", m.other)
	}
}

// refusedMismatch returns the mismatch, if its other request was refused.
func refusedMismatch(t *T) *mismatch {
	m := askMismatch(t)
	t.skipIf(!isRefusal(m.other), "the other request was not refused: %s", m.other)
	return m
}

func mismatchNotRun(t *T) { t.Once(1 + refusedMismatch(t).ran) }

func mismatchStatus(t *T) {
	if m := refusedMismatch(t); !has(t.s.Statuses.Reused, m.other) {
		t.Failf(statuses(t.s.Statuses.Reused), "%s", m.other)
	}
}

func mismatchOriginalStays(t *T) {
	m := askMismatch(t)
	m.show(t, m.other, m.original)
	switch {
	case m.atLast > m.ran:
		t.Failf("no effect of the repetition", "%s", effects(m.atLast-m.ran))
	case m.original.Success() && !sameBody(m.first, m.original):
		t.Failf("the first's response", "another response")
	}
}

// notStored returns the check that another request with the key of an operation does not get the stored response.
func notStored(stored string, change func(*T, ask.Operation, ask.Request) ask.Request) func(*T) {
	return func(t *T) {
		op := t.s.operation()
		r := t.s.request(op)
		first, rested := t.First(r), t.Rest(r)
		other := t.Send(change(t, op, r))
		t.failIf(isStored(t, first, other), "a refusal, or a response of its own", "%s", stored)
		wantRested(t, rested, other)
	}
}

// wantRested ends the check if a refusal of another request shows nothing: the operation's own repetition was refused as well.
func wantRested(t *T, rested, other ask.Exchange) {
	t.skipIf(!rested.Success() && !other.Success(), "the key did not come to rest: the repetition was answered %s", rested)
}

func withQuery(_ *T, _ ask.Operation, r ask.Request) ask.Request { return r.Query("oncecheck=other") }

func withMethod(_ *T, _ ask.Operation, r ask.Request) ask.Request {
	if r.Method == http.MethodPut {
		r.Method = http.MethodPatch
	} else {
		r.Method = http.MethodPut
	}
	return r
}

func withPath(_ *T, _ ask.Operation, r ask.Request) ask.Request {
	u := *r.URL
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+"/oncecheck", ""
	r.URL = &u
	return r
}

// isStored reports whether e, which is another request than first, was answered by the stored response of first. It ends
// the check if that cannot be told from a response of its own.
func isStored(t *T, first, e ask.Exchange) bool {
	switch {
	case !first.Success() || !e.Success():
		return false
	case len(t.s.ids) > 0:
		return t.s.ids.same(first.Response, e.Response)
	case isReplay(e.Response):
		return true
	case sameBody(first, e):
		t.NotAsked("the responses have no id by which a stored one could be told from another: %s", e)
	}
	return false
}

// mismatchLeak looks for the ids of the stored response in the refusal.
func mismatchLeak(t *T) {
	m := askMismatch(t)
	t.skipIf(m.other.Response == nil || m.other.Success(), "the other request was not refused: %s", m.other)
	shown := m.other.Response.Text()
	of, looked := facts(m.first.Response), false
	for _, path := range t.s.ids {
		id := of[path]
		if len(id) < 8 {
			continue
		}
		looked = true
		t.failIf(strings.Contains(shown, id), "nothing of the stored response", "%s, its %s", t.s.shown(id, 60), path)
	}
	t.skipIf(!looked, "the responses have no id of 8 characters to look for")
}

// inFlightMismatch sends the key with another body while the first runs.
func inFlightMismatch(t *T) (one, other ask.Exchange, w *watch) {
	all, w := during(t, func(op ask.Operation, _ ask.Request) []ask.Request {
		return []ask.Request{otherBody(t, op).Query(slowQuery(t))}
	})
	w.See(all...)
	return all[0], all[1], w
}

func mismatchInFlight(t *T) {
	one, other, w := inFlightMismatch(t)
	t.skipIf(successes(one, other) == 0, "neither was a success: %s, %s", one, other)
	w.Once()
	switch {
	case sameBody(one, other):
		t.Failf("a refusal of one", "the stored response of another request")
	case successes(one, other) > 1:
		t.Failf("a refusal of one", "two successes, %s", one)
	}
}

func mismatchInFlightStatus(t *T) {
	one, other, _ := inFlightMismatch(t)
	if !one.Success() && other.Success() { // they came in the other order
		one, other = other, one
	}
	t.skipIf(!one.Success() || other.Success() || other.Response == nil, "there was no refusal beside a success: %s, %s", one, other)
	t.failIf(!has(t.s.Statuses.Reused, other), statuses(t.s.Statuses.Reused), "%s", other)
}
