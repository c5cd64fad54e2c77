package middleware_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// differences returns what is different about a script when it is protected and must not be. The closed list: the first
// byte comes later (the response is compared as a whole), Content-Length is added, a panic leaves no partial body
// behind. On a replay besides: what is not stored (rows 37, 38 and 42). Three more follow from what net/http itself
// leaves open, and are named where they are allowed for.
func (th *theatre) differences(bare, first, again performance) (list []string) {
	report := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if !slices.EqualFunc(bare.told, first.told, th.sameWord) || bare.panicked != first.panicked {
		report("the handler was told %q, panicked %v; want %q, panicked %v", first.told, first.panicked, bare.told, bare.panicked)
	}
	if !slices.Equal(bare.hints, first.hints) {
		report("informational responses %q, want %q", first.hints, bare.hints)
	}
	if len(again.hints) > 0 || again.ran {
		report("the second request: %q, ran %v", again.hints, again.ran)
	}
	// An answer to HEAD with a Content-Length that is no number goes out bare as it stands, and no client understands
	// it: there is nothing to compare with.
	if bare.err != nil && strings.Contains(bare.err.Error(), "bad Content-Length") {
		return list
	}
	if first.panicked {
		return append(list, differencesOfPanic(bare, first, again)...)
	}
	cut := bare.broken && overran(first) && th.http2 // see sameWord
	if (bare.err != nil) != (first.err != nil) || bare.broken != first.broken && !cut {
		report("the client got %v, broken %v; want %v, broken %v", first.err, first.broken, bare.err, bare.broken)
	}
	bodiless := bare.status == http.StatusNoContent || bare.status == http.StatusNotModified
	switch storable := (!bare.broken || bodiless) && (!overran(first) || bare.head) && bare.status != http.StatusSwitchingProtocols; {
	case bare.err != nil: // no client understands this response
	case storable:
		if first.outcome != middleware.Executed && first.outcome != middleware.CookiesDropped || again.outcome != middleware.Replayed ||
			again.err != nil || again.broken {
			report("%s, then %s (%v, broken %v), want a replay", first.outcome, again.outcome, again.err, again.broken)
		}
		list = append(list, th.differencesOfResponse("first", bare, first)...)
		if first.identity && !th.http2 { // which is not stored, and has no room for trailers
			for _, p := range []*performance{&bare, &first, &again} {
				p.header, p.trailer = p.header.Clone(), nil
				p.header.Del("Trailer") // a header where there are no trailers
			}
		}
		list = append(list, th.differencesOfResponse("replay", replayable(bare), again)...)
		if fmt.Sprint(first.trailer) != fmt.Sprint(again.trailer) {
			report("replay: trailer %v, at first it was %v", again.trailer, first.trailer)
		}
	default:
		list = append(list, th.differencesOfResponse("first", bare, first)...)
		if again.status != http.StatusConflict {
			report("%s, then %s %d, want a conflict", first.outcome, again.outcome, again.status)
		}
	}
	return list
}

// sameWord compares what the handler was told.
func (th *theatre) sameWord(bare, protected string) bool {
	if bare == protected {
		return true
	}
	// That the client cannot be reached is not the handler's business.
	if strings.Contains(bare, "failed") && strings.HasSuffix(protected, "ok") {
		return true
	}
	// On HTTP/2 net/http looks at the Content-Length when it sends the header, up to 4 KiB after the bytes that are too
	// many, and has another error for them. It refuses even an empty Write when there can be no body. The capture.Writer is
	// as strict, and as lenient, as HTTP/1.1.
	return th.http2 && (strings.HasSuffix(protected, class(http.ErrContentLength)) ||
		protected == "0, ok" && bare == "0, "+class(http.ErrBodyNotAllowed))
}

// overran tells whether the handler has written more than its Content-Length.
func overran(p performance) bool {
	return slices.ContainsFunc(p.told, func(s string) bool { return strings.HasSuffix(s, class(http.ErrContentLength)) })
}

// differencesOfPanic compares a response that a panic has cut off. What was flushed has left.
func differencesOfPanic(bare, first, again performance) (list []string) {
	if first.err == nil {
		if first.broken != bare.broken || first.status != bare.status ||
			!strings.HasPrefix(bare.body, first.body) && !strings.HasPrefix(first.body, bare.body) { // buffers differ
			list = append(list, "the partial response is another one")
		}
	}
	if first.outcome != middleware.Panicked || again.status != http.StatusConflict {
		list = append(list, fmt.Sprintf("%s, then %d, want a conflict", first.outcome, again.status))
	}
	return list
}

// replayable is what the bare response is on a replay.
func replayable(p performance) performance {
	p.header = p.header.Clone()
	for _, line := range p.hops { // net/http may send another, or none
		for name := range strings.SplitSeq(line, ",") {
			p.header.Del(strings.TrimSpace(name))
		}
	}
	if p.status == http.StatusNoContent || p.status == http.StatusNotModified { // HTTP/2 leaves one there, and Go's client waits for a body
		p.header.Del("Content-Length")
	}
	for name := range p.header {
		switch canonical := http.CanonicalHeaderKey(name); canonical {
		case "Connection", "Keep-Alive", "Te", "Upgrade", "Set-Cookie", "Age", "Transfer-Encoding":
			delete(p.header, name)
		case "Date":
			p.header[name] = []string{time.Now().UTC().Format(http.TimeFormat)}
		default:
			if strings.HasPrefix(canonical, "Proxy-") {
				delete(p.header, name)
			}
		}
	}
	return p
}

func (th *theatre) differencesOfResponse(which string, want, got performance) (list []string) {
	report := func(format string, args ...any) { list = append(list, which+": "+fmt.Sprintf(format, args...)) }
	if got.status != want.status {
		report("status %d, want %d", got.status, want.status)
	}
	switch overran := overran(got); {
	case overran && th.http2: // see sameWord: what is too many was not told apart yet
		if !strings.HasPrefix(want.body, got.body) {
			report("body %s, want the start of %s", outline(got.body), outline(want.body))
		}
		return list
	case got.body != want.body:
		report("body %s, want %s", outline(got.body), outline(want.body))
	}
	late := lateTrailers(want)
	lost := !th.http2 && len(want.trailer) == 0 && len(late) > 0 && want.header.Get("Content-Length") != "" &&
		got.header.Get("Content-Length") == ""
	if fmt.Sprint(got.trailer) != fmt.Sprint(want.trailer) {
		// net/http loses trailers that were not announced when an HTTP/1.1 body fits into its buffer; capture.Writer does
		// not.
		if !lost || fmt.Sprint(got.trailer) != fmt.Sprint(late) {
			report("trailer %v, want %v", got.trailer, want.trailer)
		}
	}
	a, b := comparable(want.header), comparable(got.header)
	if length, added := b["Content-Length"]; added && a["Content-Length"] == nil {
		if length[0] != strconv.Itoa(len(want.body)) && want.body != "" {
			report("Content-Length %q for %d bytes", length, len(want.body))
		}
		delete(b, "Content-Length")
	}
	if lost {
		delete(a, "Content-Length")
	}
	if !maps.EqualFunc(a, b, slices.Equal) {
		report("header %q, want %q", b, a)
	}
	return list
}

// lateTrailers returns what the handler left under http.TrailerPrefix.
func lateTrailers(p performance) http.Header {
	late := http.Header{}
	for name, values := range p.end {
		if bare, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && len(values) > 0 {
			late[bare] = values
		}
	}
	return late
}

// comparable returns the header without what is of one response, and what a replay has besides: today's Date becomes a
// word.
func comparable(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Idempotent-Replayed")
	h.Del("X-Should-Retry")
	if date, err := http.ParseTime(h.Get("Date")); err == nil && time.Since(date).Abs() < time.Hour {
		h.Set("Date", "fresh")
	}
	return h
}
