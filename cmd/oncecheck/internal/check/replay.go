package check

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

const (
	noReplay = "no repetition was a success"
	noSample = ": add a -sample whose response has one"
)

func every(*ask.Response) bool { return true }

func replayAnswered(t *T) {
	var shown []ask.Exchange
	var want, got []string
	for _, p := range askPairs(t).all {
		if p.again.Success() || isLarge(p.first.Response) && isRefusal(p.again) {
			continue
		}
		shown, want, got = append(shown, p.first, p.again), append(want, p.first.String()), append(got, p.again.String()+p.of())
	}
	if shown != nil {
		t.Show(shown...)
		t.Failf("the first's response, "+strings.Join(slices.Compact(want), " or "), "%s", strings.Join(got, "; "))
	}
}

func replayStatus(t *T) {
	eachReplay(t, noReplay, every, func(first, again *ask.Response) {
		if again.Status != first.Status {
			t.Failf(statuses([]int{first.Status}), "%d", again.Status)
		}
	})
}

// replayBody returns the check that bodies of a kind are replayed byte for byte.
func replayBody(absent string, ofKind func(*ask.Response) bool) func(*T) {
	return func(t *T) {
		eachReplay(t, absent, ofKind, func(first, again *ask.Response) {
			if !again.SameBody(first) {
				t.Failf(fmt.Sprintf("the first's body of %d bytes", first.Size), "another body of %d bytes", again.Size)
			}
		})
	}
}

func isText(r *ask.Response) bool   { return !isEmpty(r) && !isLarge(r) && utf8.Valid(r.Body) }
func isBinary(r *ask.Response) bool { return !isLarge(r) && !utf8.Valid(r.Body) }
func isEmpty(r *ask.Response) bool  { return r.Size == 0 }
func isLarge(r *ask.Response) bool  { return r.Size >= 1<<20 }

func replayRedirect(t *T) {
	is3xx := func(r *ask.Response) bool { return r.Status >= 300 }
	eachReplay(t, "no redirection was seen"+noSample, is3xx, func(first, again *ask.Response) {
		if again.Status != first.Status || again.Header.Get("Location") != first.Header.Get("Location") {
			t.Failf(statuses([]int{first.Status})+" with Location "+first.Header.Get("Location"),
				"%d with Location %q", again.Status, again.Header.Get("Location"))
		}
	})
}

// replayLines returns the check that the lines of some headers are the first's, in order. A response without such headers is of
// no interest.
func replayLines(absent string, of func(*ask.Response) http.Header, names func(*ask.Response) []string) func(*T) {
	return func(t *T) {
		eachReplay(t, absent, func(r *ask.Response) bool { return len(names(r)) > 0 }, func(first, again *ask.Response) {
			for _, name := range names(first) {
				want, got := strings.Join(of(first).Values(name), " | "), strings.Join(of(again).Values(name), " | ")
				if got != want {
					t.Failf(name+" "+quote(want), "%s", quote(got))
				}
			}
		})
	}
}

func header(r *ask.Response) http.Header  { return r.Header }
func trailer(r *ask.Response) http.Header { return r.Trailer }

func location(r *ask.Response) (names []string) {
	if r.Header.Get("Location") != "" {
		names = []string{"Location"}
	}
	return names
}

func replayContentType(t *T) {
	hasBody := func(r *ask.Response) bool { return !isEmpty(r) }
	eachReplay(t, "no repetition of a response with a body was a success", hasBody, func(first, again *ask.Response) {
		if want, got := first.Header.Get("Content-Type"), again.Header.Get("Content-Type"); mediaType(got) != mediaType(want) {
			t.Failf("Content-Type "+quote(want), "%s", quote(got))
		}
	})
}

// mediaType returns a Content-Type without its parameters.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// typeParameters returns the rest, so that what means the same is the same.
func typeParameters(contentType string) string {
	_, rest, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.NewReplacer(" ", "", "\t", "", `"`, "").Replace(rest))
}

func repeated(r *ask.Response) (names []string) {
	for name, values := range r.Header {
		if len(values) > 1 && !isVolatile(name) {
			names = append(names, name)
		}
	}
	return names
}

func trailers(r *ask.Response) []string { return slices.Collect(maps.Keys(r.Trailer)) }

func quote(value string) string {
	if value == "" {
		return "none"
	}
	return `"` + value + `"`
}

// sameValue are the headers that belong to the result, so that a replay has the same value.
var sameValue = []string{"Etag", "Last-Modified", "Link", "Content-Language", "Content-Disposition", "Content-Location", "Allow"}

// isVolatile reports whether a header belongs to the exchange and not to the result.
func isVolatile(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Trailer", "Upgrade", "Date", "Age", "Set-Cookie", "Via",
		"Server-Timing", "X-Runtime", "Retry-After", "Alt-Svc":
		return true
	}
	lower := strings.ToLower(name)
	return strings.Contains(lower, "request-id") || strings.Contains(lower, "correlation") || strings.Contains(lower, "trace") ||
		strings.Contains(lower, "ratelimit") || strings.Contains(lower, "idempot")
}

func replayHeaders(t *T) {
	eachReplay(t, noReplay, every, func(first, again *ask.Response) {
		for name, values := range first.Header {
			switch {
			case isVolatile(name), name == "Content-Type" && isEmpty(first):
			case len(again.Header.Values(name)) == 0:
				t.Failf(name+" "+quote(values[0]), "none")
			case name == "Content-Type" && mediaType(again.Header.Get(name)) != mediaType(values[0]): // see replay/content-type
			case name == "Content-Type" && typeParameters(again.Header.Get(name)) != typeParameters(values[0]),
				slices.Contains(sameValue, name) && len(values) == 1 && again.Header.Get(name) != values[0]:
				t.Failf(name+" "+quote(values[0]), "%s", quote(again.Header.Get(name)))
			}
		}
	})
}

func replayNoCookie(t *T) {
	has := func(r *ask.Response) bool { return len(r.Header.Values("Set-Cookie")) > 0 }
	eachReplay(t, "no response sets a cookie"+noSample, has, func(first, again *ask.Response) {
		for _, cookie := range first.Header.Values("Set-Cookie") {
			if slices.Contains(again.Header.Values("Set-Cookie"), cookie) {
				name, _, _ := strings.Cut(cookie, "=") // the value may be a session's
				t.Failf("no Set-Cookie of the first", "the cookie %q", name)
			}
		}
	})
}

func replayMarked(t *T) {
	eachReplay(t, noReplay, every, func(_, again *ask.Response) {
		if !isReplay(again) {
			t.Failf("a header such as Idempotent-Replayed: true", "none")
		}
	})
}

func replayFirstUnmarked(t *T) {
	for _, p := range askPairs(t).all {
		if isReplay(p.first.Response) {
			t.Show(p.first)
			t.Failf("no header that says replay", "%s", replayHeader(p.first.Response))
		}
	}
}

func replayDate(t *T) {
	tr := later(t)
	if !tr.last().Success() {
		t.NotAsked(noReplay)
	}
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
		if !again.Success() {
			t.NotAsked(noReplay)
		}
		t.Show(first, again)
		one, isGzip := decode(t, first.Response, order[0])
		other, alsoGzip := decode(t, again.Response, order[1])
		compressed = compressed || isGzip || alsoGzip
		if !bytes.Equal(one, other) {
			t.Failf("one body after decoding", "two bodies")
		}
	}
	if !compressed {
		t.NotAsked("the server does not compress")
	}
}

// decode returns the body of a response to a client that accepts the coding, and whether it was compressed.
func decode(t *T, r *ask.Response, accepts string) (body []byte, compressed bool) {
	if !strings.EqualFold(r.Header.Get("Content-Encoding"), "gzip") {
		return r.Body, false
	}
	if !r.IsWhole() {
		t.NotAsked("a response of %d bytes is too long to be compared", r.Size)
	}
	if accepts != "gzip" {
		t.Failf("a body that the client accepts", "gzip for a client that accepts %s alone", accepts)
	}
	reader, err := gzip.NewReader(bytes.NewReader(r.Body))
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(reader, 64<<20))
	}
	if err != nil {
		t.Failf("gzip, as Content-Encoding says", "%v", err)
	}
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
