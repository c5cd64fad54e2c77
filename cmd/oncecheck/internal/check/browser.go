package check

import (
	"net/http"
	"slices"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// origin is that of a page whose browser asks.
const origin = "https://shop.example"

// preflight returns the request that a browser sends before a page's request with a key.
func (t *T) preflight() ask.Request {
	r := t.s.request(t.s.operation())
	r.Method, r.Body = http.MethodOptions, nil
	r.Header = []ask.Field{ // and neither the user's headers nor a key
		{Name: "Origin", Value: origin},
		{Name: "Access-Control-Request-Method", Value: t.s.Method},
		{Name: "Access-Control-Request-Headers", Value: "content-type," + strings.ToLower(t.s.KeyHeader)},
	}
	return r
}

func corsPreflight(t *T) {
	r := t.preflight()
	e := t.Send(r)
	if e.Response == nil || !slices.Contains(t.s.Statuses.Missing, e.Response.Status) {
		return
	}
	with := t.Send(r.With(t.s.KeyHeader, t.s.spell(t.s.operation())))
	if with.Response != nil && with.Response.Status != e.Response.Status {
		t.Failf("not "+statuses(t.s.Statuses.Missing), "%s without a key, and %s with one", e, with)
	}
}

// noCORS ends the check if the response is not for a page of another origin.
func (t *T) noCORS(e ask.Exchange) {
	if e.Response == nil || e.Response.Header.Get("Access-Control-Allow-Origin") == "" {
		t.NotAsked("the server does not answer CORS")
	}
}

func corsAllowed(t *T) {
	e := t.Send(t.preflight())
	t.noCORS(e)
	if got := e.Response.Header.Values("Access-Control-Allow-Headers"); !lists(got, t.s.KeyHeader) {
		t.Failf("Access-Control-Allow-Headers with "+t.s.KeyHeader, "%s", quote(strings.Join(got, ", ")))
	}
}

func corsExposed(t *T) {
	r := t.s.request(t.s.operation()).With("Origin", origin)
	t.First(r)
	again := t.Rest(r)
	t.noCORS(again)
	names := []string{replayHeader(again.Response)}
	if again.Response.Header.Get("Location") != "" {
		names = append(names, "Location")
	}
	if names[0] == "" {
		names = names[1:]
	}
	if len(names) == 0 {
		t.NotAsked("a replay has neither a mark nor a Location")
	}
	exposed := again.Response.Header.Values("Access-Control-Expose-Headers")
	for _, name := range names {
		if !lists(exposed, name) {
			t.Failf("Access-Control-Expose-Headers with "+name, "%s", quote(strings.Join(exposed, ", ")))
		}
	}
}

// lists reports whether a header that is a list has the name, or is *.
func lists(values []string, name string) bool {
	for _, member := range strings.Split(strings.Join(values, ","), ",") {
		if member = strings.TrimSpace(member); member == "*" || strings.EqualFold(member, name) {
			return true
		}
	}
	return false
}

func cacheNoAge(t *T) {
	t.eachReplay(noReplay, every, func(_, again *ask.Response) {
		if age := again.Header.Get("Age"); age != "" {
			t.Failf("no Age", "%s", quote(age))
		}
	})
}
