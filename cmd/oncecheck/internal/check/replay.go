package check

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
	// Its body is that of the first. For text; the next three have the others.
	row(Must, "replay/body", "a replay has the first's body, byte for byte",
		0, replayed(noReplay, isText, sameBytes), Draft26, Stripe),
	row(Must, "replay/body-binary", "a binary body is replayed byte for byte",
		0, replayed("no body was binary"+noSample, isBinary, sameBytes), Draft26),
	row(Must, "replay/body-empty", "an empty body is replayed as an empty one",
		0, replayed("no body was empty"+noSample, isEmpty, sameBytes), Draft26),
	// A refusal is allowed, another body is not.
	row(Must, "replay/body-large", "a body of 1 MiB and more is not replayed in part",
		0, replayed("no body had 1 MiB"+noSample, isLarge, sameBytes), Draft26),
	// Of a 3xx, the status and the Location are the first's.
	row(Must, "replay/redirect", "a redirection is replayed with its Location",
		0, replayed("no redirection was seen"+noSample, is3xx, sameRedirect), LocationField),
	row(Must, "replay/location", "a replay has the first's Location",
		0, sameLines("no response has a Location", header, location), LocationField),
	// The media type, or none if the first has none. For responses with a body; the parameters are replay/headers'.
	row(Must, "replay/content-type", "a replay has the first's Content-Type",
		0, replayed("no repetition of a response with a body was a success", hasBody, sameType), Draft26),
	// Each header of the first is in the repetition, but those of the connection, Date, Age, Set-Cookie and such that name
	// the exchange (request ids, traces, rate limits); those of sameValue have the same value, and Content-Type the same
	// parameters.
	row(Should, "replay/headers", "a replay has the first's headers",
		0, replayed(noReplay, every, sameHeaders), Draft26),
	// A header with several lines has the same lines in the same order.
	row(Should, "replay/headers-multiple", "a header that occurs several times is replayed as often, in order",
		0, sameLines("no response has a header that occurs several times", header, repeated), FieldNames),
	row(Should, "replay/trailers", "trailers are replayed",
		0, sameLines("no response has trailers", trailer, trailers), Draft26),
	// No Set-Cookie line of the first is in the repetition.
	row(Should, "replay/no-cookie", "a replay does not set the first's cookie",
		0, replayed("no response sets a cookie"+noSample, hasCookie, noFirstCookie)),
	// A repetition carries a header such as Idempotent-Replayed: true.
	row(Advice, "replay/marked", "a replay says that it is one",
		0, replayed(noReplay, every, isMarked), Stripe),
	// A first response carries no such header.
	row(Should, "replay/first-unmarked", "a first response does not say that it is a replay",
		0, replayFirstUnmarked, Stripe),
	// A repetition sent 2 s after the first's answer does not have the first's Date.
	row(Should, "replay/date", "a replay has its own Date",
		0, replayDate, DateField),
	// First with Accept-Encoding: gzip, repeated with identity, and the other way round: a body whose Content-Encoding is
	// gzip is gzip, goes only to a client that accepts gzip, and after decoding both bodies are the same. Not asked if the
	// server never compresses.
	row(Must, "replay/encoding", "body and Content-Encoding of a replay belong together",
		0, replayEncoding, Encoding),
	// HEAD with the key of a completed request has the status of a HEAD without.
	row(Should, "replay/head", "a HEAD with a used key is not answered by the stored response",
		0, replayHead, HeadMethod),
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
	var got, noIDs, rest []string
	bad := pairs.each(t, func(query string, tr trial) {
		switch {
		case query == "":
		case tr.effects == unseen:
			noIDs = append(noIDs, strconv.Quote(query))
		case tr.effects == 0:
			rest = append(rest, fmt.Sprintf("nothing happens with %q", query))
		case tr.effects > 1:
			shown, got = append(shown, tr.sent...), append(got, effects(tr.effects)+with(query))
		}
	})
	t.show(shown...)
	t.failIf(got != nil, "one effect", "%s", strings.Join(got, "; "))
	if noIDs != nil {
		bad = append([]string{"give -effects: there is no id in the response with " + strings.Join(noIDs, ", ")}, bad...)
	}
	rest = append(bad, rest...)
	t.skipIf(rest != nil, "%s", strings.Join(rest, "; "))
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

func every(*ask.Response) bool       { return true }
func isText(r *ask.Response) bool    { return !isEmpty(r) && !isLarge(r) && utf8.Valid(r.Body) }
func isBinary(r *ask.Response) bool  { return !isLarge(r) && !utf8.Valid(r.Body) }
func isEmpty(r *ask.Response) bool   { return r.Size == 0 }
func hasBody(r *ask.Response) bool   { return r.Size > 0 }
func isLarge(r *ask.Response) bool   { return r.Size >= 1<<20 }
func is3xx(r *ask.Response) bool     { return r.Status >= 300 }
func hasCookie(r *ask.Response) bool { return r.Header["Set-Cookie"] != nil }

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
	want = fmt.Sprintf("the first's body of %d bytes", first.Size)
	if again.SameBody(first) {
		return want, want
	}
	return want, fmt.Sprintf("another body of %d bytes", again.Size)
}

func sameRedirect(first, again *ask.Response) (want, got string) {
	says := func(r *ask.Response) string {
		return fmt.Sprintf("%d with Location %q", r.Status, r.Header.Get("Location"))
	}
	return says(first), says(again)
}

// sameLines compares the lines of some headers, or trailers, in order. A response without such is of no interest.
func sameLines(absent string, of func(*ask.Response) http.Header, names func(*ask.Response) []string) func(*T) {
	has := func(r *ask.Response) bool { return len(names(r)) > 0 }
	return replayed(absent+noSample, has, func(first, again *ask.Response) (want, got string) {
		for _, name := range names(first) {
			if want, got = lines(of(first), name), lines(of(again), name); want != got {
				break
			}
		}
		return want, got
	})
}

func lines(h http.Header, name string) string {
	return name + " " + quote(strings.Join(h.Values(name), " | "))
}

func header(r *ask.Response) http.Header  { return r.Header }
func trailer(r *ask.Response) http.Header { return r.Trailer }
func trailers(r *ask.Response) []string   { return slices.Collect(maps.Keys(r.Trailer)) }

func location(r *ask.Response) []string {
	return slices.Repeat([]string{"Location"}, min(1, len(r.Header["Location"])))
}

func repeated(r *ask.Response) (names []string) {
	for name, values := range r.Header {
		if len(values) > 1 && !volatile.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

func sameType(first, again *ask.Response) (want, got string) {
	want, _ = contentTypeOf(first)
	got, _ = contentTypeOf(again)
	return "Content-Type " + quote(want), "Content-Type " + quote(got)
}

// contentTypeOf returns the media type and its parameters, so that what means the same is the same.
func contentTypeOf(r *ask.Response) (name, parameters string) {
	same := strings.NewReplacer(" ", "", "\t", "", `"`, "").Replace(r.Header.Get("Content-Type"))
	name, parameters, _ = strings.Cut(strings.ToLower(same), ";")
	return name, parameters
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

func sameHeaders(first, again *ask.Response) (want, got string) {
	for name, values := range first.Header {
		want, got = lines(first.Header, name), lines(again.Header, name)
		isType := name == "Content-Type"
		switch {
		case volatile.MatchString(name), isType && isEmpty(first), want == got:
		case again.Header[name] == nil,
			isType && sameButParameters(first, again),
			len(values) == 1 && slices.Contains(sameValue, name):
			return want, got
		}
	}
	return "", ""
}

// sameButParameters reports whether only the parameters of the type differ.
func sameButParameters(first, again *ask.Response) bool {
	one, its := contentTypeOf(first)
	other, others := contentTypeOf(again)
	return one == other && its != others
}

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

func noAge(_, again *ask.Response) (want, got string) {
	return quote(""), quote(again.Header.Get("Age"))
}

func replayFirstUnmarked(t *T) {
	pairs.each(t, func(_ string, tr trial) {
		t.show(tr.first())
		mark := replayHeader(tr.first().Response.Header)
		t.failIf(mark != "", "no header that says replay", "%s", mark)
	})
}

func replayDate(t *T) {
	tr := later(t)
	t.skipIf(!tr.last().Success(), noReplay)
	first, again := tr.first().Response.Header.Get("Date"), tr.last().Response.Header.Get("Date")
	t.skipIf(first == "" && again == "", "the server sends no Date")
	t.failIf(again == first, "a later Date", "%s again after two seconds", quote(again))
}

func replayEncoding(t *T) {
	compressed := false
	for _, order := range [][2]string{{"gzip", "identity"}, {"identity", "gzip"}} {
		r := t.fresh()
		first := t.first(r.With("Accept-Encoding", order[0]))
		again := t.rest(r.With("Accept-Encoding", order[1]))
		t.skipIf(!again.Success(), noReplay)
		t.show(first, again)
		one, isGzip := decode(t, first.Response, order[0])
		other, alsoGzip := decode(t, again.Response, order[1])
		compressed = compressed || isGzip || alsoGzip
		t.failIf(!bytes.Equal(one, other), "one body after decoding", "two bodies")
	}
	t.skipIf(!compressed, "the server does not compress")
}

// decode returns the body of a response to a client that accepts the coding, and whether it was compressed.
func decode(t *T, r *ask.Response, accepts string) (body []byte, compressed bool) {
	if !strings.EqualFold(r.Header.Get("Content-Encoding"), "gzip") {
		return r.Body, false
	}
	t.skipIf(!r.IsWhole(), "a response of %d bytes is too long to be compared", r.Size)
	t.failIf(accepts != "gzip", "a body that the client accepts", "gzip for a client that accepts %s alone", accepts)
	reader, err := gzip.NewReader(bytes.NewReader(r.Body))
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(reader, 64<<20))
	}
	t.failIf(err != nil, "gzip, as Content-Encoding says", "%v", err)
	return body, true
}

func replayHead(t *T) {
	r := t.fresh()
	t.stored(r)
	asWithout(t, r, http.MethodHead, "the used key")
}

func replayError(t *T) {
	r, first := refusedBody(t)
	again := t.rest(r)
	t.failIf(!has([]int{first.Response.Status}, again), first.String()+" again", "%s", again)
}
