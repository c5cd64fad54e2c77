package check

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// bad returns a request that the server should refuse for its content.
func (t *T) bad() ask.Request {
	op := t.s.operation()
	r := t.s.request(op)
	switch {
	case t.s.BadBody != "":
		r.Body = []byte(op.Expand(t.s.BadBody))
	case strings.Contains(contentType(t.s.Body), "json"):
		r.Body = []byte(`{"oncecheck":`)
	default:
		t.NotAsked("the body is not JSON: give -bad-d, a body that the server refuses")
	}
	return r
}

func errorsValidation(t *T) {
	if bad := t.SendPatiently(t.bad()); !isRefusal(bad) {
		t.NotAsked("the server does not refuse the bad body (%s): give -bad-d, one that it refuses", bad)
	}
	if good := t.SendPatiently(t.s.request(t.s.operation())); !good.Success() {
		t.Failf("a success", "%s", good)
	}
}

// failure is an operation that fails, and its repetitions until three tries were answered.
type failure struct {
	tries    []ask.Exchange // all but those refused as in flight
	conflict ask.Exchange   // the last that was
	effects  int
}

// eachFailure calls judge for the failure with each query of -fail.
func (t *T) eachFailure(judge func(f failure)) {
	failures := memo(t, "failures", func() (all []failure) {
		var healthy []string
		for _, query := range t.s.Fail {
			if f, ok := t.failure(query); ok {
				all = append(all, f)
			} else {
				healthy = append(healthy, fmt.Sprintf("with -fail %q the server did not fail: %s", query, f.tries[0]))
			}
		}
		if len(all) == 0 {
			t.NotAsked("%s", strings.Join(healthy, "; "))
		}
		return all
	})
	for _, f := range failures {
		t.Show(f.tries...)
		judge(f)
	}
}

// failure sends an operation that fails, and repeats it. It reports whether it failed.
func (t *T) failure(query string) (f failure, ok bool) {
	r := t.s.request(t.s.operation()).Query(query)
	w := t.Watch()
	f.tries = []ask.Exchange{t.Send(r)}
	if f.tries[0].Success() {
		return f, false
	}
	deadline := time.Now().Add(t.s.Patience)
	for wait := 50 * time.Millisecond; len(f.tries) < 3 && time.Now().Before(deadline); wait = min(2*wait, time.Second) {
		e := t.s.Client.Do(t.ctx, r)
		if t.isInFlight(e) {
			f.conflict = e
			t.refused("in flight", e)
		} else {
			f.tries = append(f.tries, t.keep(e)...)
		}
		if err := pause(t.ctx, wait); err != nil {
			t.NotAsked("%v", err)
		}
	}
	w.See(f.tries...)
	f.effects = w.Effects(min(1, successes(f.tries...)))
	return f, true
}

func errorsFailedOnce(t *T) {
	t.eachFailure(func(f failure) {
		if f.effects > 1 {
			t.Failf("at most one effect", "%s", effects(f.effects))
		}
	})
}

func errorsFailedAnswered(t *T) {
	t.eachFailure(func(f failure) {
		if len(f.tries) < 2 {
			t.Show(f.tries[0], f.conflict)
			t.Failf("an answer", "%s for %v", f.conflict, t.s.Patience)
		}
	})
}

func errorsFailedNotSuccess(t *T) {
	t.eachFailure(func(f failure) {
		if successes(f.tries...) > 0 && f.effects == 0 {
			t.Failf("no success, or an effect", "a success, and %s", effects(f.effects))
		}
	})
}

// eachRefusal calls look for each refusal that concerns the key. It provokes them first.
func (t *T) eachRefusal(look func(kind string, e ask.Exchange)) {
	t.provoke(func(t *T) { t.keyless() })
	for _, s := range malformed {
		t.provoke(func(t *T) { t.try(s) })
	}
	t.provoke(func(t *T) { t.mismatch() })
	t.provoke(func(t *T) { t.inflight() })
	if len(t.s.refusals) == 0 {
		t.NotAsked("the server has refused nothing")
	}
	kinds := make([]string, 0, len(t.s.refusals))
	for _, r := range t.s.refusals {
		t.Show(append(slices.Clone(r.before), r.exchange)...)
		look(r.kind, r.exchange)
		kinds = append(kinds, r.kind)
	}
	t.Say("refusals seen: %s", strings.Join(kinds, ", "))
}

// provoke runs a part of another check, whose end does not end this one.
func (t *T) provoke(part func(*T)) {
	inner := &T{s: t.s, ctx: t.ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		part(inner)
	}()
	<-done
}

func errorsProblem(t *T) {
	t.eachRefusal(func(kind string, e ask.Exchange) {
		mediaType, _, _ := mime.ParseMediaType(e.Response.Header.Get("Content-Type"))
		if mediaType != "application/problem+json" {
			t.Failf("application/problem+json", "%s (the refusal: %s)", quote(mediaType), kind)
		}
		var members map[string]any
		if err := json.Unmarshal(e.Response.Body, &members); err != nil || members == nil {
			t.Failf("a JSON object", "%.60q (the refusal: %s)", t.s.secrets.hide(string(e.Response.Body)), kind)
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
	t.eachRefusal(func(kind string, e ask.Exchange) {
		if control := strings.Join(e.Response.Header.Values("Cache-Control"), ","); !strings.Contains(strings.ToLower(control), "no-store") {
			t.Failf("Cache-Control: no-store", "%s (the refusal: %s)", quote(control), kind)
		}
	})
}

func errorsSaysRetry(t *T) {
	t.eachRefusal(func(kind string, e ask.Exchange) {
		h := e.Response.Header
		if (e.Response.Status == http.StatusConflict || e.Response.Status >= 500) && h.Get("Retry-After") == "" && h.Get("X-Should-Retry") == "" {
			t.Failf("Retry-After or X-Should-Retry", "neither (the refusal: %s)", kind)
		}
	})
}

func errorsKeyNotShown(t *T) {
	t.eachRefusal(func(kind string, e ask.Exchange) {
		var shown strings.Builder
		_ = e.Response.Header.Write(&shown)
		shown.Write(e.Response.Body)
		if strings.Contains(shown.String(), e.Request.Key) {
			t.Failf("no key", "the key (the refusal: %s)", kind)
		}
	})
}
