package middleware_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/onceguard/onceguard/internal/redistest"
)

// moves are what a fuzzed script is made of. New ones are added at the end, so that the corpus keeps its meaning.
var moves = func() (list []step) {
	list = append(list, flush, flusher, fullDuplex, abort)
	for _, n := range []int{0, 1, 2, 511, 512, 513, 2047, 2048, 2049, 5000} {
		list = append(list, write(n), writeString(n), copyFrom(n))
	}
	for _, code := range []int{0, 100, 103, 200, 201, 204, 303, 304, 404, 503, 999, 1000} {
		list = append(list, status(code))
	}
	for _, name := range []string{"X-A", "X-B", http.TrailerPrefix + "X-A", http.TrailerPrefix + "X-C"} {
		list = append(list, raw(name, "a"), raw(name, "b", "c"), raw(name), deleteRaw(name), add(name, "d"), mutate(name, "e"))
	}
	for _, field := range []string{
		"Content-Type: text/csv", "Content-Type: ", "Content-Encoding: br", "Content-Encoding: ",
		"Transfer-Encoding: identity", "Transfer-Encoding: chunked",
		"Trailer: X-A", "Trailer: X-A, X-B", "Trailer: X-C", "Connection: close", "Connection: x-a", "Connection: X-B, close",
		"Set-Cookie: a=b", "Date: Thu, 01 Jan 1970 00:00:00 GMT", "Age: 1", "x-odd: a", "Keep-Alive: x", "Proxy-Connection: x",
		"Content-Length: 0", "Content-Length: 1", "Content-Length: 2", "Content-Length: 3", "Content-Length: 512",
		"Content-Length: 2048", "Content-Length: 2049", "Content-Length: 5000", "Content-Length: -1", "Content-Length: x", "Content-Length: ",
	} {
		name, value, _ := strings.Cut(field, ": ")
		list = append(list, raw(name, value))
	}
	for _, name := range []string{"Content-Type", "Content-Length", "Date", "Trailer", "Connection"} {
		list = append(list, raw(name), deleteRaw(name))
	}
	return list
}()

// conformance: 17, 18, 37, 38, 39, 40, 44, 45, 46, 47
//
// The first byte says what is asked with, each other one is a step.
func FuzzScript(f *testing.F) {
	for _, sc := range []string{"", "\x00\x00", "\x01\x05"} {
		f.Add([]byte(sc))
	}
	server := miniredis.RunT(f)
	th := openTheatre(f, redistest.NewClient(f, server.Addr()), "pipe")
	n := 0
	f.Fuzz(func(t *testing.T, b []byte) {
		const longest = 16
		if len(b) == 0 || len(b) > longest {
			return
		}
		sc := script{method: []string{http.MethodPost, http.MethodHead}[b[0]%2]}
		for _, move := range b[1:] {
			sc.do = append(sc.do, moves[int(move)%len(moves)])
		}
		server.FlushAll()
		n++
		bare, first, again := th.play(t, strconv.Itoa(n), sc)
		if list := th.differences(bare, first, again); len(list) > 0 {
			t.Errorf("%s\nbare %v\nfirst %v\nagain %v", strings.Join(list, "\n"), bare, first, again)
		}
	})
}
