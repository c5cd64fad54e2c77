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

// A comparison returns what is wanted of a replay, and what it has. It holds if these are the same.
type comparison func(first, again *ask.Response) (want, got string)

// replayed returns the check that compares each pair whose first response is of interest and whose repetition is a success. It
// is not asked if there is none.
func replayed(absent string, ofInterest func(*ask.Response) bool, compare comparison) func(*T) {
	return func(t *T) {
		absent, seen := absent, 0
		for _, p := range askPairs(t).all {
			switch {
			case !ofInterest(p.first.Response):
			case !p.again.Success():
				absent = "its repetition was no success: " + p.again.String()
			default:
				seen++
				t.Show(p.first, p.again)
				want, got := compare(p.first.Response, p.again.Response)
				t.failIf(got != want, want, "%s", got)
			}
		}
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
func hasCookie(r *ask.Response) bool { return len(r.Header.Values("Set-Cookie")) > 0 }

func replayAnswered(t *T) {
	var shown []ask.Exchange
	var want, got []string
	for _, p := range askPairs(t).all {
		if p.again.Success() || isLarge(p.first.Response) && isRefusal(p.again) {
			continue
		}
		shown, want, got = append(shown, p.first, p.again), append(want, p.first.String()), append(got, p.again.String()+p.of())
	}
	t.Show(shown...)
	t.failIf(shown != nil, "the first's response, "+strings.Join(slices.Compact(want), " or "), "%s", strings.Join(got, "; "))
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
	return replayed(absent+noSample, func(r *ask.Response) bool { return len(names(r)) > 0 }, func(first, again *ask.Response) (want, got string) {
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
		if len(values) > 1 && !isVolatile(name) {
			names = append(names, name)
		}
	}
	return names
}

func sameType(first, again *ask.Response) (want, got string) {
	if mediaType(first) == mediaType(again) {
		return "", ""
	}
	return lines(first.Header, "Content-Type"), lines(again.Header, "Content-Type")
}

// mediaType returns the Content-Type without its parameters.
func mediaType(r *ask.Response) string {
	name, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// typeParameters returns the rest, so that what means the same is the same.
func typeParameters(r *ask.Response) string {
	_, rest, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.NewReplacer(" ", "", "\t", "", `"`, "").Replace(rest))
}

func quote(value string) string {
	if value == "" {
		return "none"
	}
	return `"` + value + `"`
}

// sameValue are the headers that belong to the result, so that a replay has the same value.
var sameValue = []string{"Etag", "Last-Modified", "Link", "Content-Language", "Content-Disposition", "Content-Location", "Allow"}

// volatile matches the headers that belong to the exchange and not to the result.
var volatile = regexp.MustCompile(`^(Connection|Keep-Alive|Transfer-Encoding|Content-Length|Trailer|Upgrade|Date|Age|Set-Cookie|Via|` +
	`Server-Timing|X-Runtime|Retry-After|Alt-Svc)$|(?i)request-id|correlation|trace|ratelimit|idempot`)

func isVolatile(name string) bool { return volatile.MatchString(name) }

func sameHeaders(first, again *ask.Response) (want, got string) {
	for name, values := range first.Header {
		want, got = lines(first.Header, name), lines(again.Header, name)
		isType := name == "Content-Type"
		switch {
		case isVolatile(name), isType && isEmpty(first), want == got:
		case len(again.Header.Values(name)) == 0,
			isType && mediaType(first) == mediaType(again) && typeParameters(first) != typeParameters(again),
			len(values) == 1 && slices.Contains(sameValue, name):
			return want, got
		}
	}
	return "", ""
}

func noFirstCookie(first, again *ask.Response) (want, got string) {
	for _, cookie := range first.Header.Values("Set-Cookie") {
		if slices.Contains(again.Header.Values("Set-Cookie"), cookie) {
			name, _, _ := strings.Cut(cookie, "=") // the value may be a session's
			return "no Set-Cookie of the first", fmt.Sprintf("the cookie %q", name)
		}
	}
	return "", ""
}

func isMarked(_, again *ask.Response) (want, got string) {
	want = "a header such as Idempotent-Replayed: true"
	if isReplay(again) {
		return want, want
	}
	return want, "none"
}

func noAge(_, again *ask.Response) (want, got string) {
	return quote(""), quote(again.Header.Get("Age"))
}

func replayFirstUnmarked(t *T) {
	for _, p := range askPairs(t).all {
		t.Show(p.first)
		t.failIf(isReplay(p.first.Response), "no header that says replay", "%s", replayHeader(p.first.Response))
	}
}

func replayDate(t *T) {
	tr := later(t)
	t.skipIf(!tr.last().Success(), noReplay)
	first, again := tr.first().Response.Header.Get("Date"), tr.last().Response.Header.Get("Date")
	switch {
	case first == "" && again == "":
		t.NotAsked("the server sends no Date")
	case again == first:
		t.Failf("a later Date", "%s again after two seconds", quote(again))
	}
}

func replayEncoding(t *T) {
	compressed := false
	for _, order := range [][2]string{{"gzip", "identity"}, {"identity", "gzip"}} {
		r := t.s.fresh()
		first, again := t.First(r.With("Accept-Encoding", order[0])), t.Rest(r.With("Accept-Encoding", order[1]))
		t.skipIf(!again.Success(), noReplay)
		t.Show(first, again)
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
	r := t.s.fresh()
	t.Stored(r)
	asWithout(t, r, http.MethodHead, "the used key")
}

func replayError(t *T) {
	r, first := refusedBody(t)
	if again := t.Rest(r); again.Response == nil || again.Response.Status != first.Response.Status {
		t.Failf(first.String()+" again", "%s", again)
	}
}
