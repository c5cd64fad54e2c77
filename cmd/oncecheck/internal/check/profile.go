package check

import (
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

func keyEchoed(t *T) {
	for _, p := range askPairs(t).all {
		t.Show(p.first)
		wantEcho(t, p.first, "the first response"+p.of())
		t.Show(p.first, p.again)
		wantEcho(t, p.again, "the repetition"+p.of())
	}
	looked := []string{"first", "replay"}
	eachRefusal(t, func(kind string, e ask.Exchange) {
		if kind == "reused" || kind == "in flight" { // another has no key, or none that is valid
			wantEcho(t, e, "the refusal: "+kind)
			looked = append(looked, kind)
		}
	})
	t.Say("responses seen: %s", strings.Join(looked, ", "))
}

// failThenNot sends an operation that fails, and then without the query that makes it fail.
func failThenNot(t *T, query string) trial {
	r := t.s.fresh()
	first := t.Send(r.Query(query))
	t.skipIf(first.Response != nil && first.Response.Status < 500, "with -fail %q there was no 5xx: %s", query, first)
	again := t.Rest(r)
	t.skipIf(again.Response == nil, "after -fail %q the retry was not answered: %s", query, again)
	return trial{sent: []ask.Exchange{first, again}}
}

func errorsNotStored(t *T) {
	asked := 0
	eachQuery(t, "5xx ", t.s.Fail, failThenNot, func(tr trial) {
		if tr.first().Response == nil {
			return // no response, and none to be stored
		}
		asked++
		if t.Show(tr.sent...); !tr.last().Success() {
			t.Failf("a success of the retry, which would not fail", "%s", tr.last())
		}
	})
	t.skipIf(asked == 0, "each -fail broke the connection: give one that is answered with a 5xx")
}

// wantEcho fails the check unless the response repeats the key's header of its request.
func wantEcho(t *T, e ask.Exchange, which string) {
	t.skipIf(e.Response == nil, "%s (%s)", e, which)
	of := func(f ask.Field) bool { return strings.EqualFold(f.Name, t.s.KeyHeader) }
	want, got := e.Request.Header[slices.IndexFunc(e.Request.Header, of)].Value, e.Response.Header.Values(t.s.KeyHeader)
	t.failIf(!slices.Equal(got, []string{want}), t.s.KeyHeader+" "+quote(want), "%s (%s)", quote(strings.Join(got, " | ")), which)
}
