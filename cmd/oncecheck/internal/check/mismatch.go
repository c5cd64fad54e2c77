package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// mismatchChecks has the checks of a key that is used for another request.
var mismatchChecks = []Check{
	// An operation, then its key with another {{n}} (or -other-d): no success.
	row(Must, "mismatch/body", "the same key with another body neither runs nor gets the stored response",
		0, mismatchBody, Draft22, Draft24),
	// After the refusal of mismatch/body there is one effect. Not asked if it was no refusal.
	row(Must, "mismatch/not-run", "a request refused for its body has no effect",
		Counted, mismatchNotRun, Draft27),
	// The refusal of mismatch/body has the status for a reused key (422). Not asked if it was no refusal.
	row(Should, "mismatch/status", "another body gets 422, or the status that -status names",
		0, mismatchStatus, Draft27),
	// After mismatch/body the first request once more: no effect, and the first's body if it is a success.
	row(Must, "mismatch/original-stays", "after a refusal the original is still replayed",
		Effects, mismatchOriginalStays, Draft26),
	// An operation, then its key and body with ?oncecheck=other: not a success with the stored body.
	row(Should, "mismatch/query", "the same key with another query does not get the stored response",
		0, notStored(withQuery), Draft24),
	// A POST, then PUT with its key, path and body (PATCH if the operation is a PUT): not the stored response.
	row(Must, "mismatch/method", "the same key with another method does not get the stored response",
		0, notStored(withMethod), Draft24),
	// An operation, then the same to its path with /oncecheck appended: not the stored response.
	row(Must, "mismatch/path", "the same key on another path does not get the stored response",
		0, notStored(withPath), Draft24),
	// No value of the stored response that differs from run to run (such as its id) and has 8 characters or more is in the
	// refusal of mismatch/body.
	row(Must, "mismatch/leak", "a refusal shows nothing of the stored response",
		0, mismatchLeak, Draft5),
	// An operation, then its body with a space after each comma and colon: a success with the first's body.
	row(Advice, "mismatch/whitespace", "a JSON body with other white space is the same request",
		0, respelled(spaced, notJSON, (*T).same)),
	// An operation with -slow, and while it runs its key with another body (without -slow: both at once): one of the two is
	// a success, the other is none, and there is one effect.
	row(Must, "mismatch/in-flight", "while the first runs, the same key with another body does not run",
		Effects, mismatchInFlight, Draft22, Draft24),
	// The refusal of mismatch/in-flight has the status for a reused key.
	row(Should, "mismatch/in-flight-status", "while the first runs, another body is refused as another, and not as in flight",
		0, mismatchInFlightStatus, Draft27),
}

// scopeChecks has the checks of two users, and two routes, with one key.
var scopeChecks = []Check{
	// The same request with the headers of -H2: not the stored response. Not asked if the second user can do nothing under
	// another key, or if the repetition is refused as well.
	row(Must, "scope/user", "another user with the same key and body does not get the first's response",
		User2, scopeUser, Draft5),
	// The same request with the headers of -H2 is a success of its own, and its repetition replays it. Not asked if the same
	// under another key is none either.
	row(Must, "scope/user-runs", "another user's request with the same key runs",
		User2, scopeUserRuns, Draft5),
	// An operation with -slow, and while it runs the same with the headers of -H2 (without -slow: both at once): a success
	// of its own, no refusal. Not asked if the same under another key is none either.
	row(Must, "scope/user-in-flight", "while one user's request runs, another's with the same key runs too",
		User2, scopeUserInFlight, Draft5),
}

// mismatch is an operation, its key at rest with another body, and the operation once more. The effects are those of the
// other body.
type mismatch struct {
	trial
	other, original ask.Exchange
	more            int // effects of the operation once more
}

// otherBody returns the request with another body.
func otherBody(t *T, r ask.Request) ask.Request {
	same, another := r.Body, t.fresh().Op
	another.Key = r.Op.Key
	r.Body = []byte(another.Expand(cmp.Or(t.OtherBody, t.Body)))
	t.skipIf(bytes.Equal(r.Body, same), "the body has no {{n}}: give -other-d, the body of another request")
	return r
}

func askMismatch(t *T) mismatch {
	m := wantTold(t, "mismatch", sendMismatch)
	t.show(m.sent...)
	return m
}

func sendMismatch(t *T) (m mismatch) {
	r := t.fresh()
	other := otherBody(t, r)
	first := t.first(r)
	rested := t.rest(r)
	w := t.watch(first, rested)
	m.other = t.send(other)
	m.effects = w.try(successes(m.other), m.other).effects
	m.original = t.rest(r)
	m.more = w.try(m.effects, m.original).effects - m.effects
	m.sent = []ask.Exchange{first}
	// It took a while to come to rest.
	if rested.Request.Waited >= firstWait {
		m.sent = append(m.sent, rested)
	}
	m.sent = append(m.sent, m.other)
	return m
}

func mismatchBody(t *T) {
	m := askMismatch(t)
	if m.other.Success() {
		t.failIf(isStored(t, m.first(), m.other), "a refusal", "the stored response of another request")
		t.fail("a refusal", "%s", m.other)
	}
}

// refusedMismatch returns the mismatch, if its other request was refused.
func refusedMismatch(t *T) mismatch {
	m := askMismatch(t)
	t.skipIf(!isRefusal(m.other), "the other request was not refused: %s", m.other)
	return m
}

func mismatchNotRun(t *T) { hadOne(t, trial{effects: 1 + refusedMismatch(t).effects}) }

func mismatchStatus(t *T) {
	m := refusedMismatch(t)
	t.failIf(!has(t.Statuses.Reused, m.other), statuses(t.Statuses.Reused), "%s", m.other)
}

func mismatchOriginalStays(t *T) {
	m := askMismatch(t)
	t.show(append(m.sent, m.original)...)
	t.failIf(m.more > 0, "no effect of the repetition", "%s", effects(m.more))
	isOther := m.original.Success() && !sameBody(m.first(), m.original)
	t.failIf(isOther, "the first's response", "another response")
}

// notStored returns the check that another request with the key of an operation does not get the stored response.
func notStored(change func(*T, ask.Request) ask.Request) func(*T) {
	return func(t *T) { wantNotStored(t, change, func(ask.Exchange) {}) }
}

// wantNotStored calls stored before it fails.
func wantNotStored(t *T, change func(*T, ask.Request) ask.Request, stored func(first ask.Exchange)) {
	r := t.fresh()
	first, rested, other := t.first(r), t.rest(r), t.patient(change(t, r))
	if isStored(t, first, other) {
		stored(first)
		t.fail("a refusal, or a response of its own", "the stored response")
	}
	t.skipIf(successes(rested, other) == 0, "the key did not come to rest: the repetition was answered %s", rested)
}

func withQuery(_ *T, r ask.Request) ask.Request { return r.Query("oncecheck=other") }

func withMethod(_ *T, r ask.Request) ask.Request {
	if r.Method == http.MethodPut {
		r.Method = http.MethodPatch
	} else {
		r.Method = http.MethodPut
	}
	return r
}

func withPath(_ *T, r ask.Request) ask.Request {
	u := *r.URL
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+"/oncecheck", ""
	r.URL = &u
	return r
}

// isStored reports whether e, which is another request than first, was answered by the stored response of first. It ends
// the check if that cannot be told from a response of its own.
func isStored(t *T, first, e ask.Exchange) bool {
	switch {
	case successes(first, e) < 2:
		return false
	case len(t.ids) > 0:
		return t.ids.same(first.Response, e.Response)
	case isReplay(e.Response):
		return true
	}
	t.skipIf(sameBody(first, e), "the responses have no id by which a stored one could be told from another: %s", e)
	return false
}

// mismatchLeak looks for the ids of the stored response in the refusal.
func mismatchLeak(t *T) {
	m := askMismatch(t)
	isShown := m.other.Response != nil && !m.other.Success()
	t.skipIf(!isShown, "the other request was not refused: %s", m.other)
	of, looked := factsOf(m.first().Response), false
	for _, path := range t.ids {
		if id := of[path]; len(id) >= 8 {
			looked = true
			leaks := strings.Contains(m.other.Response.Text(), id)
			t.failIf(leaks, "nothing of the stored response", "%s, its %s", t.shown(id, 60), path)
		}
	}
	t.skipIf(!looked, "the responses have no id of 8 characters to look for")
}

// inFlightMismatch sends the key with another body while the first runs.
func inFlightMismatch(t *T) trial {
	all, w := during(t, func(r ask.Request) []ask.Request {
		return []ask.Request{otherBody(t, r)}
	})
	tr := w.try(1, all...)
	t.skipIf(successes(all...) == 0, "neither was a success: %s, %s", all[0], all[1])
	return tr
}

func mismatchInFlight(t *T) {
	tr := inFlightMismatch(t)
	hadOne(t, tr)
	t.failIf(sameBody(tr.first(), tr.last()), "a refusal of one", "the stored response of another request")
	t.failIf(successes(tr.sent...) > 1, "a refusal of one", "two successes, %s", tr.first())
}

func mismatchInFlightStatus(t *T) {
	tr := inFlightMismatch(t)
	refused := tr.last()
	if refused.Success() { // they came in the other order
		refused = tr.first()
	}
	isRefused := refused.Response != nil && !refused.Success()
	t.skipIf(!isRefused, "there was no refusal beside a success: %s, %s", tr.first(), tr.last())
	t.failIf(!has(t.Statuses.Reused, refused), statuses(t.Statuses.Reused), "%s", refused)
}

const notJSON = "the body is not JSON"

// A bodySpelling returns what is almost the same body, or nil if it has nothing to change.
type bodySpelling func(body []byte) []byte

// spaced has white space between the tokens.
func spaced(body []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, body, " ", " ") != nil || bytes.Equal(b.Bytes(), body) {
		return nil
	}
	return b.Bytes()
}

// otherNumber has a zero behind the point of the first number.
func otherNumber(body []byte) []byte {
	tokens := json.NewDecoder(bytes.NewReader(body))
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if err != nil {
			return nil
		}
		number, ok := token.(json.Number)
		if !ok || strings.ContainsAny(number.String(), "eE") {
			continue
		}
		zero := ".0"
		if strings.Contains(number.String(), ".") {
			zero = "0"
		}
		return slices.Insert(slices.Clone(body), int(tokens.InputOffset()), []byte(zero)...)
	}
}

// withNull has one more member, which is null.
func withNull(body []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || members == nil {
		return nil
	}
	member := `"oncecheck":null`
	if len(members) > 0 {
		member = "," + member
	}
	return slices.Insert(slices.Clone(body), bytes.LastIndexByte(body, '}'), []byte(member)...)
}

// respelled returns the check that judges an operation, and its key with the other spelling of the body.
func respelled(spell bodySpelling, absent string, judge func(t *T, first, again ask.Exchange)) func(*T) {
	return func(t *T) {
		r := t.fresh()
		other := spell(r.Body)
		t.skipIf(other == nil, "%s", absent)
		first := t.stored(r)
		r.Body = other
		judge(t, first, t.patient(r))
	}
}

// wantRefusal fails the check if the body was taken for that of the first.
func wantRefusal(t *T, _, other ask.Exchange) {
	t.failIf(other.Success(), "a refusal", "%s", other)
}

// wantUser2 ends the check if the second user can do nothing, and reports whether their effects are counted. Those that are may
// be the first user's alone: then a response of the first user's kind, with an id, shows that the request ran.
func wantUser2(t *T) (counted bool) {
	return wantTold(t, "user 2", func(t *T) bool {
		w := t.watch()
		e := t.patient(t.asUser2(t.fresh()))
		t.skipIf(!e.Success(), "the second user can do nothing at all: %s", e)
		counted := t.counts() && w.try(1, e).effects > 0
		isLike := e.Response.Status == t.usual && (!t.counts() || t.ids.areIn(e.Response))
		t.skipIf(!counted && !isLike, "the second user may do nothing: %s, without an effect or a response as usual", e)
		return counted
	})
}

// wantEqual ends the check if the second user gets no response of their own to the operation under another key either: then
// it is not for the key.
func wantEqual(t *T, first ask.Exchange) {
	r := t.otherKey(first.Request)
	e := t.repeat(t.asUser2(r), t.Patience, isBusy)
	isOwn := e.Success() && !isStored(t, first, e)
	t.skipIf(!isOwn, "the second user gets no response of their own under another key either: %s", e)
}

// wantOwn fails the check unless the second user's request was a success of its own. The watch began before the first's.
func wantOwn(t *T, first, other ask.Exchange, w *watch) {
	got := ""
	switch {
	case !other.Success():
		got = other.String()
	case isStored(t, first, other):
		got = "the first user's response"
	case wantUser2(t) && !t.equalIsOne && w.try(2, first, other).effects < 2:
		got = "a success that did nothing"
	default:
		return
	}
	wantEqual(t, first)
	t.fail("a success of the second user's own", "%s", got)
}

func scopeUser(t *T) {
	wantUser2(t)
	wantNotStored(t, (*T).asUser2, func(first ask.Exchange) { wantEqual(t, first) })
}

func scopeUserRuns(t *T) {
	wantUser2(t)
	r, w := t.fresh(), t.watch()
	first := t.stored(r)
	other := t.patient(t.asUser2(r))
	wantOwn(t, first, other, w)
	again := t.rest(t.asUser2(r))
	isOther := again.Success() && !sameBody(other, again)
	t.failIf(isOther, "the second user's response again", "another response")
}

func scopeUserInFlight(t *T) {
	wantUser2(t)
	all, w := during(t, func(r ask.Request) []ask.Request { return []ask.Request{t.asUser2(r)} })
	one, other := all[0], all[1]
	t.skipIf(!one.Success(), "the first user's request was no success: %s", one)
	wantOwn(t, one, other, w)
}
