package check

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// mismatch is an operation, its key with another body, and the operation once more.
type mismatch struct {
	first, other, original ask.Exchange
	ran, atLast            int // the effects of other, and of other and original
}

// other returns the operation's key with another body.
func (t *T) other(op ask.Operation) ask.Request {
	r := t.s.request(op)
	another := t.s.operation()
	another.Key = op.Key
	template := t.s.OtherBody
	if template == "" {
		template = t.s.Body
	}
	if r.Body = []byte(another.Expand(template)); bytes.Equal(r.Body, t.s.request(op).Body) {
		t.NotAsked("the body has no {{n}}: give -other-d, the body of another request")
	}
	return r
}

func (t *T) mismatch() *mismatch {
	m := memo(t, "mismatch", func() *mismatch {
		op := t.s.operation()
		r, other := t.s.request(op), t.other(op)
		m := &mismatch{first: t.First(r)}
		w := t.Watch(m.first, t.Rest(r))
		m.other = t.Send(other)
		w.See(m.other)
		m.ran = w.Effects(successes(m.other))
		m.original = t.Rest(r)
		w.See(m.original)
		m.atLast = w.Effects(m.ran)
		t.refused("reused", m.other)
		return m
	})
	t.Show(m.first, m.other)
	return m
}

func mismatchBody(t *T) {
	if m := t.mismatch(); m.other.Success() {
		if t.isStored(m.first, m.other) {
			t.Failf("a refusal", "the stored response of another request")
		}
		t.Failf("a refusal", "%s", m.other)
	}
}

func mismatchNotRun(t *T) {
	m := t.mismatch()
	if !isRefusal(m.other) {
		t.NotAsked("the other request was not refused: %s", m.other)
	}
	if m.ran > 0 {
		t.Failf("one effect", "%s", effects(1+m.ran))
	}
}

func mismatchStatus(t *T) {
	m := t.mismatch()
	if !isRefusal(m.other) {
		t.NotAsked("the other request was not refused: %s", m.other)
	}
	if !t.isReused(m.other) {
		t.Failf(statuses(t.s.Statuses.Reused), "%s", m.other)
	}
}

func mismatchOriginalStays(t *T) {
	m := t.mismatch()
	t.Show(m.first, m.other, m.original)
	switch {
	case m.atLast > m.ran:
		t.Failf("no effect of the repetition", "%s", effects(m.atLast-m.ran))
	case m.original.Success() && !sameBody(m.first, m.original):
		t.Failf("the first's response", "another response")
	}
}

// notStored sends an operation and then another request with its key, and fails if that gets the stored response.
func (t *T) notStored(change func(ask.Request) ask.Request) {
	r := t.s.request(t.s.operation())
	first := t.First(r)
	t.Rest(r)
	if other := t.Send(change(r)); t.isStored(first, other) {
		t.Failf("a refusal, or a response of its own", "the stored response")
	}
}

func mismatchQuery(t *T) {
	t.notStored(func(r ask.Request) ask.Request { return r.Query("oncecheck=other") })
}

func mismatchMethod(t *T) {
	t.notStored(func(r ask.Request) ask.Request {
		if r.Method == http.MethodPut {
			r.Method = http.MethodPatch
		} else {
			r.Method = http.MethodPut
		}
		return r
	})
}

func mismatchPath(t *T) {
	t.notStored(func(r ask.Request) ask.Request {
		u := *r.URL
		u.Path = strings.TrimSuffix(u.Path, "/") + "/oncecheck"
		u.RawPath = ""
		r.URL = &u
		return r
	})
}

// mismatchLeak looks for the ids of the stored response in the refusal.
func mismatchLeak(t *T) {
	m := t.mismatch()
	if m.other.Response == nil || m.other.Success() {
		t.NotAsked("the other request was not refused: %s", m.other)
	}
	var shown bytes.Buffer
	_ = m.other.Response.Header.Write(&shown)
	shown.Write(m.other.Response.Body)
	of, looked := facts(m.first.Response), false
	for _, path := range t.s.ids {
		id := of[path]
		if len(id) < 8 {
			continue
		}
		looked = true
		if strings.Contains(shown.String(), id) {
			t.Failf("nothing of the stored response", "%.60q, its %s", id, path)
		}
	}
	if !looked {
		t.NotAsked("the responses have no id of 8 characters to look for")
	}
}

func mismatchWhitespace(t *T) {
	r := t.s.request(t.s.operation())
	spaced := r
	var b bytes.Buffer
	if err := json.Indent(&b, r.Body, " ", " "); err != nil || bytes.Equal(b.Bytes(), r.Body) {
		t.NotAsked("the body is not JSON")
	}
	spaced.Body = b.Bytes()
	first := t.First(r)
	t.Rest(r)
	if again := t.Send(spaced); !sameBody(first, again) {
		t.Failf("the first's response", "%s", again)
	}
}

// inFlightMismatch sends the key with another body while the first runs.
func (t *T) inFlightMismatch() (one, other ask.Exchange, w *watch) {
	t.slowness(t.slowQuery())
	t.inTime(func() (inTime bool) {
		op := t.s.operation()
		w = t.Watch()
		var others []ask.Exchange
		one, others, inTime = t.during(t.s.request(op).Query(t.slowQuery()), t.other(op).Query(t.slowQuery()))
		other = others[0]
		return inTime
	})
	w.See(one, other)
	t.Show(one, other)
	t.sayAtOnce()
	return one, other, w
}

func mismatchInFlight(t *T) {
	one, other, w := t.inFlightMismatch()
	if successes(one, other) == 0 {
		t.NotAsked("neither was a success: %s, %s", one, other)
	}
	w.Once()
}

func mismatchInFlightStatus(t *T) {
	one, other, _ := t.inFlightMismatch()
	if !one.Success() && other.Success() { // they came in the other order
		one, other = other, one
	}
	if !one.Success() || other.Success() || other.Response == nil {
		t.NotAsked("there was no refusal beside a success: %s, %s", one, other)
	}
	if !t.isReused(other) {
		t.Failf(statuses(t.s.Statuses.Reused), "%s", other)
	}
}

// asOther sends an operation and, when its key has come to rest, the same request as the second user.
func (t *T) asOther() (first, other ask.Exchange, r ask.Request) {
	op := t.s.operation()
	first = t.First(t.s.request(op))
	t.Rest(t.s.request(op))
	r = t.s.asUser2(t.s.request(op), op)
	return first, t.SendPatiently(r), r
}

func scopeUser(t *T) {
	first, other, _ := t.asOther()
	if t.isStored(first, other) {
		t.Failf("a refusal, or a response of their own", "the first user's response")
	}
	if !other.Success() {
		t.wantUser2()
	}
}

func scopeUserRuns(t *T) {
	first, other, r := t.asOther()
	if !other.Success() {
		t.wantUser2()
		t.Failf("a success of their own", "%s", other)
	}
	if t.isStored(first, other) {
		t.Failf("a success of their own", "the first user's response")
	}
	if again := t.Rest(r); again.Success() && !again.Response.SameBody(other.Response) {
		t.Failf("the second user's response again", "another response")
	}
}

// wantUser2 ends the check if the second user cannot do anything.
func (t *T) wantUser2() {
	op := t.s.operation()
	if e := t.s.Client.Do(t.ctx, t.s.asUser2(t.s.request(op), op)); !e.Success() {
		t.NotAsked("the second user can do nothing at all: %s", e)
	}
}

func scopeUserInFlight(t *T) {
	t.wantUser2()
	var one, other ask.Exchange
	t.inTime(func() (inTime bool) {
		op := t.s.operation()
		r := t.s.request(op).Query(t.slowQuery())
		var others []ask.Exchange
		one, others, inTime = t.during(r, t.s.asUser2(r, op))
		other = others[0]
		return inTime
	})
	if !one.Success() {
		t.NotAsked("the first user's request was no success: %s", one)
	}
	t.Show(one, other)
	t.sayAtOnce()
	if !other.Success() || t.isStored(one, other) {
		t.Failf("a success of the second user's own", "%s", other)
	}
}

func scopeRoute(t *T) {
	op := t.s.operation()
	r := t.s.request(op)
	first := t.First(r)
	t.Rest(r)
	if other := t.Send(at(r, t.s.OtherURL, op)); t.isStored(first, other) {
		t.Failf("a refusal, or a response of its own", "the stored response of another route")
	}
}
