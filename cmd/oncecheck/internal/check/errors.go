package check

import (
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// errorChecks has the checks of requests that fail.
var errorChecks = []Check{
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
}

// profileChecks has the checks that only a profile asks: what its API specifies, and others need not do.
var profileChecks = []Check{
	// The first response, its replay, and the refusals of a reused key and of a duplicate in flight, where there are any:
	// the response header of the key's name is that of the request.
	row(Should, "key/echoed", "each response repeats the key in the header of that name",
		0, keyEchoed, acp+"6 (idempotency)", Stripe).of("acp", "stripe"),
	// An operation, then its body with a zero behind the point of its first number: a success with the first's body.
	row(Must, "mismatch/number-spelling", "a JSON body with 1.0 in place of 1 is the same request",
		0, respelled(otherNumber, "the body has no number", (*T).same), ACPBody).of("acp"),
	// An operation, then its key and its body with "oncecheck":null: no success.
	row(Must, "mismatch/null", "a JSON body with one more member, which is null, is another request",
		0, respelled(withNull, "the body is no JSON object", wantRefusal), ACPBody).of("acp"),
	// An operation with -fail gets a 5xx; the same without that query, which does not count in the comparison: a success.
	row(Must, "errors/5xx-not-stored", "after a 5xx, the same request is processed as a new one",
		Fail, errorsNotStored, acp+"6.5 (errors of the server)").of("acp"),
	// An operation, then its key and its body with a space after each comma and colon: no success.
	row(Must, "mismatch/bytes", "a body with other bytes is another request, also if it is the same JSON",
		0, respelled(spaced, notJSON, wantRefusal), "Universal Commerce Protocol 2026-08, Message Signatures, Payload Matching").of("ucp"),
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

// errorsNotStored looks at the requests that get a 5xx. Otherwise there is no response to be stored.
func errorsNotStored(t *T) {
	asked := 0
	for _, query := range t.Fail {
		r := t.fresh()
		if first := t.send(r.Query(query)); first.Response != nil && first.Response.Status >= 500 {
			asked++
			again := t.rest(r)
			t.skipIf(again.Response == nil, "after -fail %q the retry was not answered: %s", query, again)
			t.show(first, again)
			t.failIf(!again.Success(), "a success of the retry, which would not fail", "%s", again)
		}
	}
	t.skipIf(asked == 0, "no -fail was answered with a 5xx")
}

func keyEchoed(t *T) {
	pairs.each(t, func(query string, tr trial) {
		wantEcho(t, tr.first(), "the first response"+with(query))
		wantEcho(t, tr.last(), "the repetition"+with(query))
	})
	for kind, sent := range map[string][]ask.Exchange{
		"reused":    tell(t, "mismatch", sendMismatch).part.sent,
		"in flight": tell(t, "inflight", sendInflight).part.sent,
	} {
		for _, e := range sent {
			if isRefusal(e) {
				t.show(sent[0], e)
				wantEcho(t, e, "the refusal: "+kind)
			}
		}
	}
}

// wantEcho fails the check unless the response repeats the key's header of its request.
func wantEcho(t *T, e ask.Exchange, which string) {
	t.skipIf(e.Response == nil, "%s (%s)", e, which)
	isKey := func(f ask.Field) bool { return strings.EqualFold(f.Name, t.KeyHeader) }
	want := e.Request.Header[slices.IndexFunc(e.Request.Header, isKey)].Value
	got := strings.Join(e.Response.Header.Values(t.KeyHeader), " | ")
	t.failIf(got != want, t.KeyHeader+" "+quote(want), "%s (%s)", quote(got), which)
}
