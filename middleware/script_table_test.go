package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// conformance: 17, 18, 37, 38, 39, 40, 44, 45, 46, 47
func TestScripts(t *testing.T) {
	overAll(t, func(t *testing.T, protocol string) {
		th := openTheatre(t, redistest.Mini(t).Client(t), protocol)
		for n, sc := range scripts() {
			bare, first, again := th.play(t, fmt.Sprint(n), sc)
			if list := th.differences(bare, first, again); len(list) > 0 {
				t.Errorf("%s:\n%s\nbare %v\nfirst %v\nagain %v", sc.name, strings.Join(list, "\n"), bare, first, again)
			}
		}
	})
}

// Neither io.Copy, which net/http's own writer lets past its count of an HTTP/1.1 body, nor Write gets more out than
// Content-Length says.
//
// conformance: 45, 46
func TestBeyondTheLength(t *testing.T) {
	overAll(t, func(t *testing.T, protocol string) {
		th := openTheatre(t, redistest.Mini(t).Client(t), protocol)
		for name, do := range map[string]step{"Write": write(601), "WriteString": writeString(601), "io.Copy": copyFrom(601)} {
			p, clear := th.stage(name, script{name: name, do: []step{set("Content-Length", "600"), do}})
			first, again := th.attend(t, p, "/protected", name), th.attend(t, p, "/protected", name)
			clear()
			if want := told(0, http.ErrContentLength); first.told[1] != want || !first.broken {
				t.Errorf("%s: told %q, broken %v; want %q", name, first.told[1], first.broken, want)
			}
			if first.outcome != middleware.Unknown || again.outcome != middleware.InFlight {
				t.Errorf("%s: %s, then %s; want it not stored", name, first.outcome, again.outcome)
			}
		}
	})
}

func scripts() (list []script) {
	list = append(list, []script{
		{name: "nothing"},
		{name: "all kinds of Write", do: []step{write(1), writeString(2), copyFrom(3), write(2048), writeString(5000), copyFrom(5000)}},
		{name: "superfluous status", do: []step{status(201), status(500), write(3), status(404)}},
		{name: "superfluous invalid status", do: []step{status(201), status(0), status(1000)}},
		{name: "status 0", do: []step{status(0)}},
		{name: "status 99", do: []step{set("X-A", "a"), status(99)}},
		{name: "status 1000 after a flush", do: []step{write(1), flush, status(1000)}},

		{name: "hints", do: []step{set("Link", "</a.css>"), status(103), add("Link", "</b.css>"), status(103), del("Link"), status(201), write(4)}},
		{name: "100", do: []step{status(100), status(202), write(4)}},
		{name: "102 alone", do: []step{status(102)}},
		{name: "hint with a Content-Length", do: []step{set("Content-Length", "4"), status(103), write(4)}},
		{name: "hint after the header", do: []step{status(201), status(103), write(4)}},
		{name: "hint after a flush", do: []step{write(4), flush, status(103), write(4)}},
		{name: "hint alone, then a flush", do: []step{status(103), flush}},
		{name: "101", do: []step{set("Upgrade", "x"), set("Connection", "upgrade"), status(101)}},

		{name: "header after the header", do: []step{set("X-A", "a"), status(201), set("X-A", "b"), set("X-B", "b"), write(3), set("X-C", "c")}},
		{name: "header after a Write", do: []step{set("X-A", "a"), write(3), del("X-A"), set("X-B", "b")}},
		{name: "header after an empty Write", do: []step{set("X-A", "a"), write(0), set("X-A", "b"), status(404)}},
		{name: "first header after the header", do: []step{status(201), set("X-A", "a"), write(3)}},
		{name: "header after a flush", do: []step{set("X-A", "a"), flush, set("X-A", "b"), add("X-A", "c"), write(3), del("X-A")}},
		{name: "values in order", do: []step{add("Link", "b"), add("Link", "a"), add("Link", "b"), write(1)}},
		{name: "changed in place", do: []step{add("X-A", "a"), add("X-A", "b"), mutate("X-A", "c"), status(200), mutate("X-A", "d"), write(1), flush, mutate("X-A", "e")}},
		{name: "odd names", do: []step{raw("x-odd", "a"), raw("X-Odd", "b"), raw("x_y", "c"), write(1)}},
		{name: "invalid names and values", do: []step{raw("not a name", "a"), raw("X-Lines", "a\r\nX-Smuggled: b"), raw("X-Space", " a "), write(1)}},
		{name: "empty value", do: []step{set("X-Empty", ""), raw("X-None"), write(1)}},
		{name: "no Date", do: []step{raw("Date"), write(1)}},
		{name: "Date of 1970", do: []step{set("Date", "Thu, 01 Jan 1970 00:00:00 GMT"), set("Age", "5"), write(1)}},
		{name: "hop by hop", do: []step{
			set("Connection", "x-hop"), set("X-Hop", "a"), set("Keep-Alive", "timeout=5"), set("Proxy-Authenticate", "Basic"), set("X-Kept", "b"), write(1),
		}},
		{name: "Connection: close", do: []step{set("Connection", "close"), write(3)}},
		{name: "cookie", do: []step{set("Set-Cookie", "a=b"), write(3)}},
		{name: "large headers", do: []step{set("X-Large", strings.Repeat("x", 100_000)), add("X-Large", strings.Repeat("y", 100_000)), write(3)}},

		{name: "type", do: []step{set("Content-Type", "text/csv"), write(600)}},
		{name: "empty type", do: []step{set("Content-Type", ""), write(600)}},
		{name: "no type", do: []step{raw("Content-Type"), write(600)}},
		{name: "no type, flushed", do: []step{raw("Content-Type"), write(1), flush, write(600)}},
		{name: "flush before the body", do: []step{flush, write(600)}},
		{name: "status, flush, body", do: []step{status(201), flush, write(600), copyFrom(5000)}},
		{name: "flush after one byte", do: []step{write(1), flush, write(600)}},
		{name: "type after a flush", do: []step{flush, set("Content-Type", "text/csv"), write(600)}},
		{name: "sniffed from pieces", do: []step{write(1), writeString(1), copyFrom(510), write(1)}},
		{name: "encoded", do: []step{set("Content-Encoding", "br"), write(600)}},
		{name: "encoded, of a type", do: []step{set("Content-Encoding", "br"), set("Content-Type", "text/html"), set("Vary", "Accept-Encoding"), write(600), flush}},
		{name: "empty encoding", do: []step{set("Content-Encoding", ""), write(600)}},
		{name: "TE identity", do: []step{set("Transfer-Encoding", "identity"), write(600)}},
		{name: "TE identity, flushed", do: []step{set("Transfer-Encoding", "identity"), write(600), flush, write(5000)}},
		{name: "TE chunked", do: []step{set("Transfer-Encoding", "chunked"), write(600)}},
		{name: "TE chunked and a length", do: []step{set("Transfer-Encoding", "chunked"), set("Content-Length", "600"), write(600)}},
		{name: "TE identity and a length", do: []step{set("Transfer-Encoding", "identity"), set("Content-Length", "600"), write(600)}},

		{name: "length", do: []step{set("Content-Length", "600"), write(300), writeString(200), copyFrom(100)}},
		{name: "length twice", do: []step{add("Content-Length", "3"), add("Content-Length", "3"), write(3)}},
		{name: "length 0", do: []step{set("Content-Length", "0")}},
		{name: "no length", do: []step{raw("Content-Length"), write(3)}},
		{name: "no length, empty", do: []step{raw("Content-Length")}},
		{name: "empty length", do: []step{set("Content-Length", ""), write(3)}},
		{name: "length, flushed", do: []step{set("Content-Length", "600"), flush, write(600), flush}},
		{name: "length after the header", do: []step{write(1), set("Content-Length", "9"), write(3)}},
		{name: "length +3", do: []step{set("Content-Length", "+3"), write(3)}},
		{name: "length too large to be one", do: []step{set("Content-Length", "99999999999999999999"), write(3)}},
		{name: "negative length", do: []step{set("Content-Length", "-1"), write(3)}},
		{name: "length no number", do: []step{set("Content-Length", "three"), write(3)}},
		{name: "length no number, long", do: []step{set("Content-Length", "three"), write(5000)}},
		{name: "too short", do: []step{set("Content-Length", "600"), write(599)}},
		{name: "too short, empty", do: []step{set("Content-Length", "600")}},
		{name: "too short, flushed", do: []step{set("Content-Length", "600"), write(10), flush}},
		{name: "too long", do: []step{set("Content-Length", "3"), write(4)}},
		{name: "too long, by the second", do: []step{set("Content-Length", "3"), write(2), write(2), write(1)}},
		{name: "too long, after all", do: []step{set("Content-Length", "3"), write(3), write(1), copyFrom(600)}},
		{name: "too long, flushed", do: []step{set("Content-Length", "3"), write(2), flush, write(2), flush}},
		{name: "too long and large", do: []step{set("Content-Length", "6000"), write(5000), write(5000)}},

		{name: "announced trailers", do: []step{set("Trailer", "X-A, x-b"), add("Trailer", "X-None"), write(5), set("X-A", "a"), add("X-B", "b"), add("X-B", "c")}},
		{name: "trailers without a body", do: []step{set("Trailer", "X-A"), status(201), set("X-A", "a")}},
		{name: "trailer that was a header", do: []step{set("Trailer", "X-A"), set("X-A", "a"), write(5)}},
		{name: "trailer that was another header", do: []step{set("Trailer", "X-A"), set("X-A", "a"), write(5), set("X-A", "b")}},
		{name: "trailer that was a header and is none", do: []step{set("Trailer", "X-A"), set("X-A", "a"), write(5), del("X-A")}},
		{name: "forbidden trailers", do: []step{set("Trailer", "Content-Length, X-A"), write(5), set("Content-Length", "7"), set("X-A", "a")}},
		{name: "late trailers, short", do: []step{write(5), set(http.TrailerPrefix+"X-A", "a")}},
		{name: "late trailers, flushed", do: []step{write(5), flush, set(http.TrailerPrefix+"X-A", "a")}},
		{name: "late trailers, copied", do: []step{copyFrom(600), set(http.TrailerPrefix+"X-A", "a")}},
		{name: "late trailers, long", do: []step{write(5000), raw(http.TrailerPrefix+"X-A", "a", "b")}},
		{name: "late trailers, empty", do: []step{flush, set(http.TrailerPrefix+"X-A", "a")}},
		{name: "early late trailers", do: []step{set(http.TrailerPrefix+"X-A", "a"), write(5)}},
		{name: "early late trailers, changed", do: []step{set(http.TrailerPrefix+"X-A", "a"), write(5), set(http.TrailerPrefix+"X-A", "b")}},
		{name: "early late trailers, gone", do: []step{set(http.TrailerPrefix+"X-A", "a"), write(5), raw(http.TrailerPrefix+"X-B", "b"), deleteRaw(http.TrailerPrefix + "X-A")}},
		{name: "both trailers", do: []step{set("Trailer", "X-A"), write(5), flush, set("X-A", "a"), set(http.TrailerPrefix+"X-B", "b"), set("X-C", "c")}},
		{name: "trailers and a length", do: []step{set("Trailer", "X-A"), set("Content-Length", "5"), write(5), set("X-A", "a")}},
		{name: "late trailers and a length", do: []step{set("Content-Length", "5"), write(5), flush, set(http.TrailerPrefix+"X-A", "a")}},
		{name: "trailer changed in place", do: []step{set("Trailer", "X-A"), set("X-A", "a"), mutateLater("X-A", "b", func(s *stage) string { return write(1)(s) + flush(s) })}},
		{name: "trailer and no content", do: []step{set("Trailer", "X-A"), status(204), set("X-A", "a")}},

		{name: "flushes", do: []step{flush, flusher, write(3), flush, flush, copyFrom(600), flusher, write(5000)}},
		{name: "flush alone", do: []step{flush}},
		{name: "flush no content", do: []step{status(204), flush, write(1), set("X-A", "a")}},
		{name: "body of a 204", do: []step{status(204), write(0), write(1), copyFrom(600)}},
		{name: "body of a 304", do: []step{set("ETag", `"v1"`), set("Content-Type", "text/csv"), set("Content-Length", "9"), status(304), writeString(1)}},
		{name: "length of a 204", do: []step{set("Content-Length", "9"), status(204)}},
		{name: "204 to HEAD", method: http.MethodHead, do: []step{status(204), write(1)}},

		{name: "HEAD", method: http.MethodHead, do: []step{set("X-A", "a")}},
		{name: "HEAD with a body", method: http.MethodHead, do: []step{write(600)}},
		{name: "HEAD with a long body", method: http.MethodHead, do: []step{write(5000), write(10)}},
		{name: "HEAD with a length", method: http.MethodHead, do: []step{set("Content-Length", "5000")}},
		{name: "HEAD with a length and a body", method: http.MethodHead, do: []step{set("Content-Length", "600"), copyFrom(600)}},
		{name: "HEAD with a length and half a body", method: http.MethodHead, do: []step{set("Content-Length", "600"), write(300)}},
		{name: "HEAD, flushed", method: http.MethodHead, do: []step{write(3), flush, write(3)}},
		{name: "HEAD with trailers", method: http.MethodHead, do: []step{set("Trailer", "X-A"), write(3), set("X-A", "a")}},
		{name: "PUT", method: http.MethodPut, do: []step{status(204)}},

		{name: "deadlines", do: []step{deadlines(time.Hour), write(600), flush}},
		{name: "deadline passed", do: []step{write(3), writeDeadlinePassed, write(3), flush, write(3)}},
		{name: "full duplex", do: []step{fullDuplex, write(3), flush, write(3)}},
		{name: "push", do: []step{pushable, write(3)}},

		{name: "abort", do: []step{abort}},
		{name: "abort after the header", do: []step{status(201), abort}},
		{name: "abort after a Write", do: []step{write(3), abort}},
		{name: "abort after a long Write", do: []step{write(5000), write(5000), abort}},
		{name: "abort after a flush", do: []step{write(3), flush, write(3), abort}},
	}...)
	sizes := []int{0, 1, 511, 512, 513, 2047, 2048, 2049, 5000}
	for _, n := range sizes {
		list = append(list,
			script{name: fmt.Sprint("Write ", n), do: []step{write(n)}},
			script{name: fmt.Sprint("Write ", n, ", then 1"), do: []step{write(n), write(1)}},
			script{name: fmt.Sprint("WriteString ", n), do: []step{status(201), writeString(n)}},
			script{name: fmt.Sprint("Copy ", n), do: []step{copyFrom(n)}},
			script{name: fmt.Sprint("Copy 100, then ", n), do: []step{copyFrom(100), copyFrom(n)}},
			script{name: fmt.Sprint("Flush after ", n), do: []step{write(n), flush, write(n)}},
		)
	}
	for _, code := range []int{200, 201, 204, 205, 206, 299, 303, 304, 307, 400, 404, 418, 429, 500, 503, 599, 600, 999} {
		list = append(list, script{name: fmt.Sprint("Status ", code), do: []step{set("Content-Type", "text/csv"), status(code), write(3)}})
	}
	return list
}

func deleteRaw(name string) step {
	return func(s *stage) string {
		delete(s.w.Header(), name)
		return ""
	}
}
