package check

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
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
	for _, p := range t.pairs().all {
		if p.again.Success() || isLarge(p.first.Response) && isRefusal(p.again) {
			continue
		}
		t.Show(p.first, p.again)
		t.Failf("the first's response, "+p.first.String(), "%s%s", p.again, p.of())
	}
}

func replayStatus(t *T) {
	t.eachReplay(noReplay, every, func(first, again *ask.Response) {
		if again.Status != first.Status {
			t.Failf(statuses([]int{first.Status}), "%d", again.Status)
		}
	})
}

// replayBody returns the check that bodies of a kind are replayed byte for byte.
func replayBody(absent string, ofKind func(*ask.Response) bool) func(*T) {
	return func(t *T) {
		t.eachReplay(absent, ofKind, func(first, again *ask.Response) {
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
	t.eachReplay("no redirection was seen"+noSample, is3xx, func(first, again *ask.Response) {
		if again.Status != first.Status || again.Header.Get("Location") != first.Header.Get("Location") {
			t.Failf(statuses([]int{first.Status})+" with Location "+first.Header.Get("Location"),
				"%d with Location %q", again.Status, again.Header.Get("Location"))
		}
	})
}

// replayField returns the check that a header is the first's, where that is of interest.
func replayField(name, absent string, ofInterest func(*ask.Response) bool) func(*T) {
	return func(t *T) {
		t.eachReplay(absent, ofInterest, func(first, again *ask.Response) {
			if got, want := again.Header.Get(name), first.Header.Get(name); got != want {
				t.Failf(name+" "+quote(want), "%s", quote(got))
			}
		})
	}
}

func hasLocation(r *ask.Response) bool { return r.Header.Get("Location") != "" }
func hasBody(r *ask.Response) bool     { return !isEmpty(r) }

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
	t.eachReplay(noReplay, every, func(first, again *ask.Response) {
		for name, values := range first.Header {
			switch {
			case isVolatile(name), name == "Content-Type" && isEmpty(first):
			case len(again.Header.Values(name)) == 0:
				t.Failf(name+" "+quote(values[0]), "none")
			case slices.Contains(sameValue, name) && len(values) == 1 && again.Header.Get(name) != values[0]:
				t.Failf(name+" "+quote(values[0]), "%s", quote(again.Header.Get(name)))
			}
		}
	})
}

func replayHeadersMultiple(t *T) {
	multiple := func(h http.Header) (names []string) {
		for name, values := range h {
			if len(values) > 1 && !isVolatile(name) {
				names = append(names, name)
			}
		}
		return names
	}
	has := func(r *ask.Response) bool { return len(multiple(r.Header)) > 0 }
	t.eachReplay("no response has a header that occurs several times"+noSample, has, func(first, again *ask.Response) {
		for _, name := range multiple(first.Header) {
			if want, got := first.Header.Values(name), again.Header.Values(name); !slices.Equal(got, want) {
				t.Failf(name+" "+quote(strings.Join(want, " | ")), "%s", quote(strings.Join(got, " | ")))
			}
		}
	})
}

func replayTrailers(t *T) {
	has := func(r *ask.Response) bool { return len(r.Trailer) > 0 }
	t.eachReplay("no response has trailers"+noSample, has, func(first, again *ask.Response) {
		for name, want := range first.Trailer {
			if got := again.Trailer.Values(name); !slices.Equal(got, want) {
				t.Failf("trailer "+name+" "+quote(strings.Join(want, " | ")), "%s", quote(strings.Join(got, " | ")))
			}
		}
	})
}

func replayNoCookie(t *T) {
	has := func(r *ask.Response) bool { return len(r.Header.Values("Set-Cookie")) > 0 }
	t.eachReplay("no response sets a cookie"+noSample, has, func(first, again *ask.Response) {
		for _, cookie := range first.Header.Values("Set-Cookie") {
			if slices.Contains(again.Header.Values("Set-Cookie"), cookie) {
				t.Failf("no Set-Cookie of the first", "%s", quote(cookie))
			}
		}
	})
}

func replayMarked(t *T) {
	t.eachReplay(noReplay, every, func(_, again *ask.Response) {
		if !isReplay(again) {
			t.Failf("a header such as Idempotent-Replayed: true", "none")
		}
	})
}

func replayFirstUnmarked(t *T) {
	for _, p := range t.pairs().all {
		if isReplay(p.first.Response) {
			t.Show(p.first)
			t.Failf("no header that says replay", "%s", replayHeader(p.first.Response))
		}
	}
}

func replayDate(t *T) {
	tried := t.later()
	if !tried.second.Success() {
		t.NotAsked(noReplay)
	}
	first, again := tried.first.Response.Header.Get("Date"), tried.second.Response.Header.Get("Date")
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
		r := t.s.request(t.s.operation())
		first, again := t.First(r.With("Accept-Encoding", order[0])), t.Rest(r.With("Accept-Encoding", order[1]))
		if !again.Success() {
			t.NotAsked(noReplay)
		}
		t.Show(first, again)
		one, isGzip := t.decode(first.Response, order[0])
		other, alsoGzip := t.decode(again.Response, order[1])
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
func (t *T) decode(r *ask.Response, accepts string) (body []byte, compressed bool) {
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
	r := t.s.request(t.s.operation())
	t.First(r)
	t.Rest(r)
	head := r.Bare(http.MethodHead)
	without, with := t.Send(head.Without(t.s.KeyHeader)), t.Send(head)
	if without.Response == nil {
		t.NotAsked("HEAD: %s", without)
	}
	if with.Response == nil || with.Response.Status != without.Response.Status {
		t.Failf("HEAD with a used key as without: "+without.String(), "%s", with)
	}
}

func replayError(t *T) {
	r := t.bad()
	first := t.SendPatiently(r)
	if !isRefusal(first) {
		t.NotAsked("the server does not refuse the bad body (%s): give -bad-d, one that it refuses", first)
	}
	if again := t.Rest(r); again.Response == nil || again.Response.Status != first.Response.Status {
		t.Failf(first.String()+" again", "%s", again)
	}
}
