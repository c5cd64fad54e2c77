package check

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// refusal is a response that refused a request because of its key.
type refusal struct {
	kind     string // such as "in flight"
	exchange ask.Exchange
	before   []ask.Exchange // with the same key, without which there would be none
}

// refused remembers a refusal for the checks of refusals, if it is one of that kind.
func (t *T) refused(kind string, e ask.Exchange) {
	if e.Response == nil || e.Response.Status < 400 || kind == "in flight" && !t.s.Statuses.isInFlight(e) {
		return
	}
	if slices.ContainsFunc(t.s.refusals, func(known refusal) bool { return known.kind == kind }) {
		return
	}
	r := refusal{kind: kind, exchange: e}
	for _, x := range t.sent {
		if x.Request.Key == e.Request.Key && x.Sent.Before(e.Sent) {
			r.before = append(r.before, x)
		}
	}
	t.s.refusals = append(t.s.refusals, r)
}

// eachRefusal calls look for each refusal that concerns the key. It provokes them first.
func eachRefusal(t *T, look func(kind string, e ask.Exchange)) {
	provoke := func(part func(*T)) { (&T{s: t.s, ctx: t.ctx}).do(part) } // its end does not end this check
	provoke(func(t *T) { keyless(t) })
	for _, s := range malformed {
		provoke(func(t *T) { trySpelling(t, s) })
	}
	provoke(func(t *T) { askMismatch(t) })
	provoke(func(t *T) { askInflight(t) })
	t.skipIf(len(t.s.refusals) == 0, "the server has refused nothing")
	kinds := make([]string, 0, len(t.s.refusals))
	for _, r := range t.s.refusals {
		t.Show(append(slices.Clone(r.before), r.exchange)...)
		look(r.kind, r.exchange)
		kinds = append(kinds, r.kind)
	}
	t.Say("refusals seen: %s", strings.Join(kinds, ", "))
}

func errorsProblem(t *T) {
	eachRefusal(t, func(kind string, e ask.Exchange) {
		mediaType, _, _ := mime.ParseMediaType(e.Response.Header.Get("Content-Type"))
		t.failIf(mediaType != "application/problem+json", "application/problem+json", "%s (the refusal: %s)", quote(mediaType), kind)
		var members map[string]any
		if err := json.Unmarshal(e.Response.Body, &members); err != nil || members == nil {
			t.Failf("a JSON object", "%s (the refusal: %s)", t.s.shown(string(e.Response.Body), 60), kind)
		}
		if status, ok := members["status"]; ok && status != float64(e.Response.Status) {
			t.Failf("the member status to be that of the response", "%v with a %d (the refusal: %s)", status, e.Response.Status, kind)
		}
		for _, name := range []string{"type", "title", "detail", "instance"} {
			if value, ok := members[name]; ok {
				if _, isString := value.(string); !isString {
					t.Failf("the member "+name+" to be a string", "%v (the refusal: %s)", value, kind)
				}
			}
		}
	})
}

func errorsNoStore(t *T) {
	eachRefusal(t, func(kind string, e ask.Exchange) {
		if control := strings.Join(e.Response.Header.Values("Cache-Control"), ","); !strings.Contains(strings.ToLower(control), "no-store") {
			t.Failf("Cache-Control: no-store", "%s (the refusal: %s)", quote(control), kind)
		}
	})
}

func errorsSaysRetry(t *T) {
	eachRefusal(t, func(kind string, e ask.Exchange) {
		h := e.Response.Header
		t.failIf((e.Response.Status == http.StatusConflict || e.Response.Status >= 500) && h.Get("Retry-After") == "" && h.Get("X-Should-Retry") == "", "Retry-After or X-Should-Retry", "neither (the refusal: %s)", kind)
	})
}

func errorsKeyNotShown(t *T) {
	eachRefusal(t, func(kind string, e ask.Exchange) {
		t.failIf(strings.Contains(e.Response.Text(), e.Request.Key), "no key", "the key (the refusal: %s)", kind)
	})
}
