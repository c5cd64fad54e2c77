package check

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

const (
	noReplay = "no repetition was a success"
	noSample = ": add a -sample whose response has one"
)

// replayChecks has the checks of a replay. They look at the plain request, and at the request with each -sample: if the
// repetition is a success, it is compared with the first response. What no first response has is not asked.
var replayChecks = []Check{
	// The repetition is a success itself, not a refusal. While it is refused as in flight it is repeated, and a response
	// of 1 MiB or more may be refused.
	row(Should, "replay/answered", "a repetition is answered with the first's response",
		0, replayAnswered, Draft26, Stripe),
	// Its status is that of the first (201 stays 201, 303 stays 303).
	row(Must, "replay/status", "a replay has the first's status",
		0, replayed(noReplay, every, sameStatus), Draft26, Stripe),
	// Its body is that of the first, also if it is binary, empty or large. One of 1 MiB may be refused.
	row(Must, "replay/body", "a replay has the first's body, byte for byte",
		0, replayed(noReplay, every, sameBytes), Draft26, Stripe),
	// Of a 3xx, the status and the Location are the first's.
	row(Must, "replay/location", "a replay has the first's Location",
		0, replayed("no response has a Location"+noSample, hasLocation, sameLocation), LocationField),
	// The media type, or none if the first has none. For responses with a body; the parameters are replay/headers'.
	row(Must, "replay/content-type", "a replay has the first's Content-Type",
		0, replayed("no repetition of a response with a body was a success", hasBody, sameType), Draft26),
	// Each header of the first is in the repetition, but those of the connection, Date, Age, Set-Cookie and such that name
	// the exchange (request ids, traces, rate limits); those of sameValue have the same value, and Content-Type the same
	// parameters.
	row(Should, "replay/headers", "a replay has the first's headers",
		0, replayed(noReplay, every, sameHeaders), Draft26),
	// No Set-Cookie line of the first is in the repetition.
	row(Should, "replay/no-cookie", "a replay does not set the first's cookie",
		0, replayed("no response sets a cookie"+noSample, hasCookie, noFirstCookie)),
	// A repetition carries a header such as Idempotent-Replayed: true.
	row(Advice, "replay/marked", "a replay says that it is one",
		0, replayed(noReplay, every, isMarked), Stripe),
	// -bad-d (by default a JSON body that is cut) twice under one key: if the first is a 4xx, the second has its status.
	// Not asked if the server accepts it.
	row(Should, "replay/error", "a request refused for its content gets the same status again",
		0, replayError, Draft26),
}

// unseen are the effects of a trial where a second run could not be seen.
const unseen = -1

// pairs are requests that were a success, and their repetitions when the keys had come to rest.
var pairs = plot{"pair", func(s *Session) []string { return append([]string{""}, s.Samples...) }, func(t *T, query string) trial {
	r, w := t.fresh().Query(query), t.watch()
	first := t.patient(r)
	t.skipIf(!first.Success(), "the first request with %q was no success: %s", query, first)
	again := t.rest(r)
	if !t.counts() && !t.ids.areIn(first.Response) {
		return trial{[]ask.Exchange{first, again}, unseen}
	}
	return w.try(1, first, again)
}}

// with names the sample.
func with(query string) string {
	if query == "" {
		return ""
	}
	return fmt.Sprintf(" (with %q)", query)
}

// onceSamples also says which samples could not be asked: a run without them must not look complete.
func onceSamples(t *T) {
	var shown []ask.Exchange
	var got, unasked []string
	bad := pairs.each(t, func(query string, tr trial) {
		switch {
		case query == "":
		case tr.effects == unseen:
			unasked = append([]string{fmt.Sprintf("give -effects: there is no id in the response with %q", query)}, unasked...)
		case tr.effects == 0:
			unasked = append(unasked, fmt.Sprintf("nothing happens with %q", query))
		case tr.effects > 1:
			shown, got = append(shown, tr.sent...), append(got, effects(tr.effects)+with(query))
		}
	})
	t.show(shown...)
	t.failIf(got != nil, "one effect", "%s", strings.Join(got, "; "))
	unasked = append(unasked, bad...)
	t.skipIf(unasked != nil, "%s", strings.Join(unasked, "; "))
}

// A comparison returns what is wanted of a replay, and what it has. It holds if these are the same.
type comparison func(first, again *ask.Response) (want, got string)

// replayed returns the check that compares each pair whose first response is of interest and whose repetition is a success. It
// is not asked if there is none.
func replayed(absent string, ofInterest func(*ask.Response) bool, compare comparison) func(*T) {
	return func(t *T) {
		absent, seen := absent, 0
		pairs.each(t, func(_ string, tr trial) {
			switch first, again := tr.first().Response, tr.last(); {
			case !ofInterest(first):
			case !again.Success():
				absent = "its repetition was no success: " + again.String()
			default:
				seen++
				want, got := compare(first, again.Response)
				t.failIf(got != want, want, "%s", got)
			}
		})
		t.skipIf(seen == 0, "%s", absent)
	}
}

func every(*ask.Response) bool         { return true }
func isEmpty(r *ask.Response) bool     { return len(r.Body) == 0 }
func hasBody(r *ask.Response) bool     { return len(r.Body) > 0 }
func isLarge(r *ask.Response) bool     { return len(r.Body) >= 1<<20 }
func hasLocation(r *ask.Response) bool { return r.Header["Location"] != nil }
func hasCookie(r *ask.Response) bool   { return r.Header["Set-Cookie"] != nil }

func replayAnswered(t *T) {
	var shown []ask.Exchange
	var want, got []string
	pairs.each(t, func(query string, tr trial) {
		first, again := tr.first(), tr.last()
		if !again.Success() && !(isLarge(first.Response) && isRefusal(again)) {
			shown = append(shown, tr.sent...)
			want, got = append(want, first.String()), append(got, again.String()+with(query))
		}
	})
	t.show(shown...)
	t.failIf(got != nil, "the first's response, "+strings.Join(slices.Compact(want), " or "), "%s", strings.Join(got, "; "))
}

func sameStatus(first, again *ask.Response) (want, got string) {
	return strconv.Itoa(first.Status), strconv.Itoa(again.Status)
}

func sameBytes(first, again *ask.Response) (want, got string) {
	want = fmt.Sprintf("the first's body of %d bytes", len(first.Body))
	if bytes.Equal(first.Body, again.Body) {
		return want, want
	}
	return want, fmt.Sprintf("another body of %d bytes", len(again.Body))
}

func sameLocation(first, again *ask.Response) (want, got string) {
	return lines(first.Header, "Location"), lines(again.Header, "Location")
}

func lines(h http.Header, name string) string {
	return name + " " + quote(strings.Join(h.Values(name), " | "))
}

func sameType(first, again *ask.Response) (want, got string) {
	want, _, _ = strings.Cut(mediaType(first), ";")
	got, _, _ = strings.Cut(mediaType(again), ";")
	return "Content-Type " + quote(want), "Content-Type " + quote(got)
}

// mediaType returns the type with its parameters, so that what means the same is the same.
func mediaType(r *ask.Response) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "\t", "", `"`, "").Replace(r.Header.Get("Content-Type")))
}

func sameHeaders(first, again *ask.Response) (want, got string) {
	for name, values := range first.Header {
		want, got = lines(first.Header, name), lines(again.Header, name)
		isType := name == "Content-Type"
		switch {
		case volatile.MatchString(name), want == got, isType && (isEmpty(first) || mediaType(first) == mediaType(again)):
		case isType, again.Header[name] == nil, len(values) > 1, slices.Contains(sameValue, name):
			return want, got
		}
	}
	return "", ""
}

func quote(value string) string {
	if value == "" {
		return "none"
	}
	return `"` + value + `"`
}

// sameValue are the headers that belong to the result, so that a replay has the same value.
var sameValue = strings.Fields(`Etag Last-Modified Link Content-Language Content-Disposition Content-Location Allow`)

// volatile matches the headers that belong to the exchange and not to the result.
var volatile = regexp.MustCompile(`^(Connection|Keep-Alive|Transfer-Encoding|Content-Length|Trailer|Upgrade|Date|Age|` +
	`Set-Cookie|Via|Server-Timing|X-Runtime|Retry-After|Alt-Svc)$|(?i)request-id|correlation|trace|ratelimit|idempot`)

func noFirstCookie(first, again *ask.Response) (want, got string) {
	for _, cookie := range first.Header["Set-Cookie"] {
		if slices.Contains(again.Header["Set-Cookie"], cookie) {
			name, _, _ := strings.Cut(cookie, "=") // the value may be a session's
			return "no Set-Cookie of the first", fmt.Sprintf("the cookie %q", name)
		}
	}
	return "", ""
}

func isMarked(_, again *ask.Response) (want, got string) {
	want, got = "a header such as Idempotent-Replayed: true", "none"
	if isReplay(again) {
		got = want
	}
	return want, got
}

func replayError(t *T) {
	r := t.fresh()
	switch {
	case t.BadBody != "":
		r.Body = []byte(r.Op.Expand(t.BadBody))
	case strings.Contains(contentType(t.Body), "json"):
		r.Body = []byte(`{"oncecheck":`)
	default:
		t.skip("the body is not JSON: give -bad-d, a body that the server refuses")
	}
	first := t.patient(r)
	t.skipIf(!isRefusal(first), "the server does not refuse the bad body (%s): give -bad-d, one that it refuses", first)
	again := t.rest(r)
	t.failIf(!has([]int{first.Response.Status}, again), first.String()+" again", "%s", again)
}
