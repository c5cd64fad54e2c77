package check

import (
	"fmt"
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

func errorsNotStored(t *T) {
	var unfit []string
	for _, query := range t.s.Fail {
		r := t.s.fresh()
		first := t.Send(r.Query(query))
		if first.Response == nil || first.Response.Status < 500 {
			unfit = append(unfit, fmt.Sprintf("with -fail %q there was no 5xx: %s", query, first))
			continue
		}
		again := t.Rest(r)
		t.Show(first, again)
		if again.Response == nil {
			t.NotAsked("the retry was not answered: %s", again)
		}
		if !again.Success() {
			t.Failf("a success of the retry, which would not fail", "%s (-fail %q)", again, query)
		}
	}
	if len(unfit) == len(t.s.Fail) {
		t.NotAsked("%s", strings.Join(unfit, "; "))
	}
}

// wantEcho fails the check unless the response repeats the key's header of its request.
func wantEcho(t *T, e ask.Exchange, which string) {
	if e.Response == nil {
		t.NotAsked("%s (%s)", e, which)
	}
	of := func(f ask.Field) bool { return strings.EqualFold(f.Name, t.s.KeyHeader) }
	want, got := e.Request.Header[slices.IndexFunc(e.Request.Header, of)].Value, e.Response.Header.Values(t.s.KeyHeader)
	if !slices.Equal(got, []string{want}) {
		t.Failf(t.s.KeyHeader+" "+quote(want), "%s (%s)", quote(strings.Join(got, " | ")), which)
	}
}
