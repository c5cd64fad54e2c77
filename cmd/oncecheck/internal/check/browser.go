package check

import (
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// origin is that of a page whose browser asks.
const origin = "https://shop.example"

// preflight returns the request that a browser sends before a page's request with a key.
func preflight(t *T) ask.Request {
	r := t.s.fresh()
	r.Method, r.Body = http.MethodOptions, nil
	r.Header = []ask.Field{ // and neither the user's headers nor a key
		{Name: "Origin", Value: origin},
		{Name: "Access-Control-Request-Method", Value: t.s.Method},
		{Name: "Access-Control-Request-Headers", Value: "content-type," + strings.ToLower(t.s.KeyHeader)},
	}
	return r
}

func corsPreflight(t *T) {
	r := preflight(t)
	e := t.Send(r)
	if !has(t.s.Statuses.Missing, e) {
		return
	}
	with := t.Send(r.With(t.s.KeyHeader, t.s.operation().Expand(t.s.KeyFormat)))
	t.failIf(with.Response != nil && with.Response.Status != e.Response.Status, "not "+statuses(t.s.Statuses.Missing), "%s without a key, and %s with one", e, with)
}

// noCORS ends the check if the response is not for a page of another origin.
func noCORS(t *T, e ask.Exchange) {
	t.skipIf(e.Response == nil || e.Response.Header.Get("Access-Control-Allow-Origin") == "", "the server does not answer CORS")
}

func corsAllowed(t *T) {
	e := t.Send(preflight(t))
	noCORS(t, e)
	if got := e.Response.Header.Values("Access-Control-Allow-Headers"); !lists(got, t.s.KeyHeader) {
		t.Failf("Access-Control-Allow-Headers with "+t.s.KeyHeader, "%s", quote(strings.Join(got, ", ")))
	}
}

func corsExposed(t *T) {
	r := t.s.fresh().With("Origin", origin)
	t.First(r)
	again := t.Rest(r)
	noCORS(t, again)
	names := location(again.Response)
	if mark := replayHeader(again.Response); mark != "" {
		names = append(names, mark)
	}
	t.skipIf(len(names) == 0, "a replay has neither a mark nor a Location")
	exposed := again.Response.Header.Values("Access-Control-Expose-Headers")
	for _, name := range names {
		t.failIf(!lists(exposed, name), "Access-Control-Expose-Headers with "+name, "%s", quote(strings.Join(exposed, ", ")))
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
