package onceclient

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"
)

// Types of onceguard's problem documents (RFC 9457) that a caller may want to tell apart, see [ProblemType]. The page
// docs/clients.md describes what to do about each.
const (
	InFlight           = "urn:onceguard:problem:in-flight"           // 409: repeated by the Transport
	OutcomeUnknown     = "urn:onceguard:problem:outcome-unknown"     // 409: begun, and it may have taken effect
	ResponseNotStored  = "urn:onceguard:problem:response-not-stored" // 409: not processed again, and there is no response
	FingerprintChanged = "urn:onceguard:problem:fingerprint-changed" // 409: processed, and cannot be compared
	KeyExpired         = "urn:onceguard:problem:key-expired"         // 400: too old; it may have taken effect before
	KeyReused          = "urn:onceguard:problem:key-reused"          // 422: the key was used for another request
	KeyFailed          = "urn:onceguard:problem:key-failed"          // 500: nothing was done
	RecordUnreadable   = "urn:onceguard:problem:record-unreadable"   // 500: it may have taken effect
)

// maxProblem is how many bytes of a response's body are read to find its problem type, and before a repetition.
const maxProblem = 64 << 10

// ProblemType returns the type of the problem document in the body of resp, or "" if there is none or it is longer than
// 64 KiB. Call it before you read the body. The body can still be read from its beginning. If the body breaks off, the
// type is "", and reading the body returns the error.
func ProblemType(resp *http.Response) string {
	kept, err := peek(resp)
	if err != nil {
		resp.Body = replace(resp.Body, io.MultiReader(bytes.NewReader(kept), failing{err}))
		return ""
	}
	return problemType(resp.Header, kept)
}

// judge reports whether resp calls for a repetition, and returns the type of its problem document if that was read.
// Before a repetition it reads the beginning of the body into memory, so that a later read of it cannot stall. An error
// means that the body broke off.
func judge(resp *http.Response) (repeat bool, problem string, err error) {
	repeat, ask := judgeHeader(resp)
	if !repeat && !ask {
		return false, "", nil
	}
	kept, err := peek(resp)
	if err != nil {
		return false, "", err
	}
	problem = problemType(resp.Header, kept)
	if ask {
		repeat = judgeProblem(resp.StatusCode, problem)
	}
	return repeat, problem, nil
}

// judgeHeader reports whether resp calls for a repetition, or whether its problem document decides that (ask).
func judgeHeader(resp *http.Response) (repeat, ask bool) {
	if resp.StatusCode < 400 {
		return false, false
	}
	switch strings.ToLower(resp.Header.Get("X-Should-Retry")) {
	case "true":
		return true, false
	case "false":
		return false, false
	}
	if strings.EqualFold(resp.Header.Get("Idempotent-Replayed"), "true") {
		return false, false
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		520, 521, 522, 523, 524: // Cloudflare has no answer from the server, or none that it understands
		return true, false
	case http.StatusConflict, http.StatusInternalServerError:
		return false, true
	}
	return false, false
}

// judgeProblem reports whether a 409 or 500 calls for a repetition.
func judgeProblem(status int, problem string) bool {
	if status == http.StatusConflict {
		return problem == InFlight
	}
	return problem != RecordUnreadable && problem != KeyFailed
}

// peek returns the beginning of the body of resp, and leaves the whole body to be read, if there is no error.
func peek(resp *http.Response) ([]byte, error) {
	kept, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return kept, err
	}
	resp.Body = replace(resp.Body, io.MultiReader(bytes.NewReader(kept), resp.Body))
	return kept, nil
}

// replace returns a body that reads from r and closes body.
func replace(body io.Closer, r io.Reader) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{r, body}
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
