package onceclient

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"
)

// OutcomeUnknown is the type of onceguard's problem document (RFC 9457) for a request that was begun, and may have taken
// effect: see [ProblemType]. The page docs/clients.md has the other types, and what to do about each.
const OutcomeUnknown = "urn:onceguard:problem:outcome-unknown"

const (
	inFlight         = "urn:onceguard:problem:in-flight"
	keyFailed        = "urn:onceguard:problem:key-failed"        // nothing was done
	recordUnreadable = "urn:onceguard:problem:record-unreadable" // it may have taken effect
)

// maxProblem is how many bytes of a response's body are read to find its problem type.
const maxProblem = 64 << 10

// ProblemType returns the type of the problem document in the body of resp, or "" if there is none or it is longer than
// 64 KiB. Call it before you read the body. The body can still be read from its beginning. If the body breaks off, the
// type is "", and reading the body returns the error.
func ProblemType(resp *http.Response) string {
	kept, err := keep(resp, maxProblem)
	if err != nil {
		return ""
	}
	return problemType(resp.Header, kept)
}

// repeats reports whether resp calls for a repetition. problem is the type of its problem document.
func repeats(resp *http.Response, problem string) bool {
	says := strings.ToLower(resp.Header.Get("X-Should-Retry"))
	switch {
	case resp.StatusCode < 400:
		return false
	case says == "true", says == "false":
		return says == "true"
	case strings.EqualFold(resp.Header.Get("Idempotent-Replayed"), "true"):
		return false
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		520, 521, 522, 523, 524: // Cloudflare has no answer from the server, or none that it understands
		return true
	case http.StatusConflict:
		return problem == inFlight
	case http.StatusInternalServerError:
		return problem != recordUnreadable && problem != keyFailed
	}
	return false
}

// keep reads a body of up to n bytes to its end, and the beginning of a longer one. It returns what it has read. The
// body of resp then begins with that, and ends with the error if it has broken off.
func keep(resp *http.Response, n int64) ([]byte, error) {
	kept, err := io.ReadAll(io.LimitReader(resp.Body, n+1))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(kept), rest), resp.Body}
	return kept, err
}

// streams reports whether the body of resp goes on for as long as the client reads: events, or after 101 a connection.
func streams(resp *http.Response) bool {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return resp.StatusCode == http.StatusSwitchingProtocols || mediaType == "text/event-stream"
}

// failing is an io.Reader that returns an error.
type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// problemType returns the member "type" of body, if its media type is that of a problem document.
func problemType(h http.Header, body []byte) string {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || mediaType != "application/problem+json" {
		return ""
	}
	var document struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(body, &document) != nil {
		return ""
	}
	return document.Type
}
