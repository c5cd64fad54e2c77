package check

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// errorChecks has the checks of requests that fail, and of each refusal that concerns the key (missing, malformed, reused,
// in flight).
var errorChecks = []Check{
	// -bad-d (by default a JSON body that is cut) is refused with a 4xx; a good one under a new key is a success. Not asked
	// if the server accepts the bad one.
	row(Must, "errors/validation", "after a refused body, a corrected request under a new key runs",
		0, errorsValidation),
	// An operation with -fail, with one key until three tries were answered other than as in flight: at most one effect.
	row(Must, "errors/failed-once", "a request that failed after its effect does not have a second one",
		Fail|Counted, failures.judged(hadAtMostOne), Stripe),
	// As errors/failed-once, for up to -patience: a repetition is answered other than as in flight. A 409 with
	// X-Should-Retry: false is such an answer.
	row(Should, "errors/failed-answered", "a request that failed does not lock its key for ever",
		Fail, failures.judged(isUnlocked), Draft27),
	// As errors/failed-once: if one of the answers is a success, there is an effect.
	row(Must, "errors/failed-not-success", "a failed request without effect is not answered with a success later",
		Fail|Counted, failures.judged(noWrongSuccess), Draft26),
	// Content-Type is application/problem+json, the body a JSON object, its status (if there) that of the response, type and
	// title (if there) strings.
	row(Should, "errors/problem", "refusals are problem documents",
		0, errorsProblem, ProblemDetails, Draft27),
	// Cache-Control has no-store.
	row(Advice, "errors/no-store", "refusals are not to be cached",
		0, errorsNoStore, Caching),
	// Each 409 and 5xx has Retry-After or X-Should-Retry.
	row(Advice, "errors/says-retry", "conflicts say whether to retry",
		0, errorsSaysRetry),
	// The key is neither in the body nor in a header.
	row(Advice, "errors/key-not-shown", "refusals do not repeat the key",
		0, errorsKeyNotShown, Draft5),
}

// profileChecks has the checks that only a profile asks: what its API specifies, and others need not do.
var profileChecks = []Check{
	// The first response, its replay, and the refusals of a reused key and of a duplicate in flight, where there are any:
	// the response header of the key's name is that of the request.
	row(Should, "key/echoed", "each response repeats the key in the header of that name",
		0, keyEchoed, ACP6, Stripe).of("acp", "stripe"),
	// An operation, then its body with a zero behind the point of its first number: a success with the first's body.
	row(Must, "mismatch/number-spelling", "a JSON body with 1.0 in place of 1 is the same request",
		0, respelled(otherNumber, "the body has no number", (*T).same), ACPBody).of("acp"),
	// An operation, then its key and its body with "oncecheck":null: no success.
	row(Must, "mismatch/null", "a JSON body with one more member, which is null, is another request",
		0, respelled(withNull, "the body is no JSON object", wantRefusal), ACPBody).of("acp"),
	// An operation with -fail gets a 5xx; the same without that query, which does not count in the comparison: a success.
	row(Must, "errors/5xx-not-stored", "after a 5xx, the same request is processed as a new one",
		Fail, errorsNotStored, ACPErrors).of("acp"),
	// An operation, then its key and its body with a space after each comma and colon: no success.
	row(Must, "mismatch/bytes", "a body with other bytes is another request, also if it is the same JSON",
		0, respelled(spaced, notJSON, wantRefusal), UCPPayload).of("ucp"),
}

// refusedBody sends a request that the server refuses for its content.
func refusedBody(t *T) (ask.Request, ask.Exchange) {
	r := t.fresh()
	switch {
	case t.BadBody != "":
		r.Body = []byte(r.Op.Expand(t.BadBody))
	case strings.Contains(contentType(t.Body), "json"):
		r.Body = []byte(`{"oncecheck":`)
	default:
		t.skip("the body is not JSON: give -bad-d, a body that the server refuses")
	}
	e := t.patient(r)
	t.skipIf(!isRefusal(e), "the server does not refuse the bad body (%s): give -bad-d, one that it refuses", e)
	return r, e
}

func errorsValidation(t *T) {
	refusedBody(t)
	t.success(t.patient(t.fresh()))
}

// failures are operations that fail, and their repetitions until three tries were answered, with each query of -fail.
var failures = plot{"failure", func(s *Session) []string { return s.Fail }, fail}

// fail sends an operation that fails, and repeats it. What is refused as in flight is no try, unless nothing else comes.
func fail(t *T, query string) trial {
	r, w := t.fresh().Query(query), t.watch()
	tries := []ask.Exchange{t.send(r)}
	t.skipIf(tries[0].Success(), "with -fail %q the server did not fail: %s", query, tries[0])
	var conflict []ask.Exchange
	t.until(t.Patience, func() bool {
		e := t.send(r)
		if t.Statuses.isInFlight(e) {
			conflict = []ask.Exchange{e}
		} else {
			tries = append(tries, e)
		}
		return len(tries) == 3
	})
	if len(tries) < 2 {
		tries = append(tries, conflict...)
	}
	return w.try(min(1, successes(tries...)), tries...)
}

// notFailing are operations that fail, and then the same without the query that makes them fail.
var notFailing = plot{"5xx", func(s *Session) []string { return s.Fail }, func(t *T, query string) trial {
	r := t.fresh()
	first := t.send(r.Query(query))
	isOther := first.Response != nil && first.Response.Status < 500
	t.skipIf(isOther, "with -fail %q there was no 5xx: %s", query, first)
	again := t.rest(r)
	t.skipIf(again.Response == nil, "after -fail %q the retry was not answered: %s", query, again)
	return trial{sent: []ask.Exchange{first, again}}
}}

func errorsNotStored(t *T) {
	asked := 0
	notFailing.judged(func(t *T, tr trial) {
		// Otherwise there is no response to be stored.
		if tr.first().Response != nil {
			asked++
			t.failIf(!tr.last().Success(), "a success of the retry, which would not fail", "%s", tr.last())
		}
	})(t)
	t.skipIf(asked == 0, "each -fail broke the connection: give one that is answered with a 5xx")
}

// eachRefusal looks at the refusals that concern the key, of which it provokes one of each kind.
func eachRefusal(t *T, look func(kind string, e ask.Exchange)) {
	var kinds []string
	see := func(kind string, isRefused func(ask.Exchange) bool, provoke func(*T) []ask.Exchange) {
		sent := tell(t, "refusal "+kind, provoke).part
		i := slices.IndexFunc(sent, isRefused)
		if i < 0 {
			return
		}
		e, shown := sent[i], sent[i:i+1]
		// Without the first there would be none.
		if i > 0 && sent[0].Request.Op.Key == e.Request.Op.Key {
			shown = []ask.Exchange{sent[0], e}
		}
		t.show(shown...)
		kinds = append(kinds, kind)
		look(kind, e)
	}
	isError := func(e ask.Exchange) bool { return e.Response != nil && e.Response.Status >= 400 }
	see("missing", isError, func(t *T) []ask.Exchange { return keyless(t).sent })
	see("malformed", isError, func(t *T) (sent []ask.Exchange) {
		for _, s := range slices.Concat(malformed, empties) {
			sent = append(sent, trySpelling(t, s).first())
		}
		return sent
	})
	see("reused", isError, func(t *T) []ask.Exchange {
		m := askMismatch(t)
		return []ask.Exchange{m.first(), m.other}
	})
	see("in flight", t.Statuses.isInFlight, func(t *T) []ask.Exchange { return inflight(t).sent })
	t.skipIf(kinds == nil, "the server has refused nothing")
	t.say("refusals seen: %s", strings.Join(kinds, ", "))
}

func errorsProblem(t *T) {
	eachRefusal(t, func(kind string, e ask.Exchange) {
		const is = "application/problem+json"
		mediaType, _, _ := mime.ParseMediaType(e.Response.Header.Get("Content-Type"))
		t.failIf(mediaType != is, is, "%s (the refusal: %s)", quote(mediaType), kind)
		var members map[string]any
		bad := json.Unmarshal(e.Response.Body, &members) != nil || members == nil
		t.failIf(bad, "a JSON object", "%s (the refusal: %s)", t.shown(string(e.Response.Body), 60), kind)
		for name, value := range members {
			_, isString := value.(string)
			switch name {
			case "status":
				bad = value != float64(e.Response.Status)
				t.failIf(bad, "the member status to be that of the response", "%v (the refusal: %s)", value, kind)
			case "type", "title", "detail", "instance":
				t.failIf(!isString, "the member "+name+" to be a string", "%v (the refusal: %s)", value, kind)
			}
		}
	})
}

func errorsNoStore(t *T) {
	eachRefusal(t, func(kind string, e ask.Exchange) {
		control := strings.Join(e.Response.Header.Values("Cache-Control"), ",")
		isStored := !strings.Contains(strings.ToLower(control), "no-store")
		t.failIf(isStored, "Cache-Control: no-store", "%s (the refusal: %s)", quote(control), kind)
	})
}

func errorsSaysRetry(t *T) {
	eachRefusal(t, func(kind string, e ask.Exchange) {
		h, mayRetry := e.Response.Header, e.Response.Status == http.StatusConflict || e.Response.Status >= 500
		isSilent := h.Get("Retry-After") == "" && h.Get("X-Should-Retry") == ""
		t.failIf(mayRetry && isSilent, "Retry-After or X-Should-Retry", "neither (the refusal: %s)", kind)
	})
}

func errorsKeyNotShown(t *T) {
	eachRefusal(t, func(kind string, e ask.Exchange) {
		isShown := strings.Contains(e.Response.Text(), e.Request.Op.Key)
		t.failIf(isShown, "no key", "the key (the refusal: %s)", kind)
	})
}

func keyEchoed(t *T) {
	pairs.each(t, func(query string, tr trial) {
		wantEcho(t, tr.first(), "the first response"+with(query))
		wantEcho(t, tr.last(), "the repetition"+with(query))
	})
	eachRefusal(t, func(kind string, e ask.Exchange) {
		// Another has no key, or none that is valid.
		if kind == "reused" || kind == "in flight" {
			wantEcho(t, e, "the refusal: "+kind)
		}
	})
}

// wantEcho fails the check unless the response repeats the key's header of its request.
func wantEcho(t *T, e ask.Exchange, which string) {
	t.skipIf(e.Response == nil, "%s (%s)", e, which)
	isKey := func(f ask.Field) bool { return strings.EqualFold(f.Name, t.KeyHeader) }
	want := e.Request.Header[slices.IndexFunc(e.Request.Header, isKey)].Value
	got := strings.Join(e.Response.Header.Values(t.KeyHeader), " | ")
	t.failIf(got != want, t.KeyHeader+" "+quote(want), "%s (%s)", quote(got), which)
}
