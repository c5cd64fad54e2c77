package middleware_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// conformance lists what a client, a handler or an operator may rely on. The tests of a row name its number in their
// comment: "conformance: 24", or "conformance: 7, 11, for keys". Most rows come from the draft of the
// Idempotency-Key header field (-07), RFC 9110 (HTTP), RFC 9651 (structured fields), RFC 9457 (problems) and Stripe's
// documentation. For the others there is no text.
var conformance = []string{
	// The key.
	1:  `The header is a structured-field string: the key of "abc" is abc.`,
	2:  `\" and \\ are the only escapes in it. Any other is 400.`,
	3:  `A key has characters from 0x20 to 0x7E only: a tab or non-ASCII is 400.`,
	4:  `Parameters after the string are ignored.`,
	5:  `Two field lines, or a list, are 400.`,
	6:  `A malformed key is 400. The request does not run without protection.`,
	7:  `Quotes are optional: abc and "abc" are the same key.`,
	8:  `An empty key is 400, not a missing one.`,
	9:  `A key has at most 255 characters.`,
	10: `The key is validated before anything is looked up or run.`,
	11: `Keys are case-sensitive, the header's name is not. Another header can have the key.`,

	// Which requests are protected.
	12: `POST and PATCH are, other methods on demand.`,
	13: `Without a key a request passes untouched or, if one is required, gets 400. A CORS preflight passes.`,
	14: `A refusal that needs no body does not read it, and sends no 100 Continue. The client gets it all the same.`,

	// Run and replay.
	15: `The first request runs. The same request again has the same status and body, and does not run.`,
	16: `Replays, and only they, have Idempotent-Replayed: true.`,
	17: `A replay has the exact status and the exact bytes of the body.`,
	18: `A replay has the handler's headers, several values of one name in their order.`,
	19: `Most 4xx are replayed. Some of them, and 5xx without WithAtMostOnce, are not stored.`,
	20: `A request that is refused before the claim leaves the key free.`,
	21: `After the retention, which starts when the run ends, the key is new.`,
	22: `A handler whose client has gone finishes, and the retry gets its response.`,
	23: `A panic goes on with the same value, and no response is stored.`,

	// Concurrency.
	24: `A duplicate in flight gets 409, with the age of the run as Retry-After: from 1 s to the length of the lease.`,
	25: `Of concurrent requests on several processes one runs.`,
	26: `With WithWait, duplicates get the response of the one that runs, and never run themselves.`,
	27: `Another payload under a key in flight is 422, not 409.`,
	28: `A run whose lease is lost is told so, and does not overwrite the next one's claim or response.`,

	// Comparison and scope.
	29: `The same key with another body, query or media type is 422, and the first response stays.`,
	30: `Credentials, trace ids, framing and parameters of the media type are not compared.`,
	31: `Two multipart bodies that differ in the boundary are the same.`,
	32: `Two users with the same key do not see each other.`,
	33: `Authentication and authorization come before a replay.`,

	// Problems.
	34: `A refusal is application/problem+json, has constant texts, is not cached, and links to the draft.`,
	35: `The key as the client sent it is never echoed, logged or stored.`,
	36: `A browser gets an HTML page, in which values are escaped.`,

	// HTTP.
	37: `Fields of the connection (Connection and what it names, Transfer-Encoding, Upgrade) are not stored.`,
	38: `A replay has today's Date, no Age, and a Content-Length where the status and trailers allow one.`,
	39: `1xx are sent to the first caller at once. They are not stored, nor taken for the final status.`,
	40: `Trailers are replayed as trailers.`,
	41: `Only the handler's own headers are stored. Those of outer middlewares are today's, once.`,
	42: `Set-Cookie is not replayed unless asked for.`,
	43: `Content-Encoding is replayed with the body that it belongs to.`,
	44: `The headers are those at the first WriteHeader or Write, with the Content-Type that net/http would guess.`,
	45: `ReadFrom, WriteString and ResponseController behave as on net/http's writer, and none bypasses the capture.`,
	46: `More bytes than Content-Length, and a body that the status forbids, fail as on net/http's writer.`,
	47: `A response that is too long or hijacked is delivered, not stored, and never run again.`,
	48: `http.TimeoutHandler goes outside: inside it answers while its handler still runs.`,
	49: `The handler has its request as without the middleware, and multipart files are removed.`,

	// Browsers and clients.
	50: `A page of another origin can send the key and read the headers, with the CORS settings of docs/reference.md.`,
	51: `A form that is clicked twice makes one order, and both clicks end on the same page.`,
	52: `A POST that http.Transport repeats by itself does not run again.`,
}

var conformanceComment = regexp.MustCompile(`(?m)^// conformance: (\d+(?:, \d+)*)(?:, [a-z].*|: .*)?$`)

// Each number that a test names is in the list, and each row of the list has a test.
func TestConformance(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range conformanceComment.FindAllSubmatch(text, -1) {
			for row := range strings.SplitSeq(string(m[1]), ", ") {
				if n, _ := strconv.Atoi(row); n < 1 || n >= len(conformance) {
					t.Errorf("%s: there is no row %s", name, row)
				}
				tested[row] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for row, text := range conformance {
		if row > 0 && !tested[strconv.Itoa(row)] {
			t.Errorf("row %d has no test: %s", row, text)
		}
	}
}
