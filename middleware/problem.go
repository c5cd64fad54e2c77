package middleware

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"strconv"
	"time"
)

// Problem is an error response in the terms of RFC 9457. Type and Title are constant for each kind of problem.
type Problem struct {
	Type           string `json:"type"` // an absolute URI: urn:onceguard:problem:...
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Detail         string `json:"detail"`                    // what the client may do about it; holds nothing that the client sent
	OriginalStatus int    `json:"original_status,omitempty"` // of the response that was not stored, 0 when unknown

	// Retryable reports whether the same request may succeed later. It is sent as X-Should-Retry, which some clients obey.
	Retryable bool `json:"-"`
	// RetryAfter is sent as Retry-After (RFC 9110 section 10.2.3), in whole seconds. It is 0 when Retryable is false.
	RetryAfter time.Duration `json:"-"`
}

func newProblem(name string, status int, title, detail string) Problem {
	return Problem{Type: "urn:onceguard:problem:" + name, Title: title, Status: status, Detail: detail}
}

// withDetail returns p with another detail.
func (p Problem) withDetail(detail string) Problem {
	p.Detail = detail
	return p
}

// retryable returns p for a request that may succeed when it is repeated, at the earliest in a second.
func (p Problem) retryable() Problem {
	p.Retryable, p.RetryAfter = true, time.Second
	return p
}

var (
	keyMissing = newProblem("key-missing", http.StatusBadRequest, "Idempotency key is missing",
		"This operation must carry an idempotency key, so that it can be repeated safely.")
	keyInvalid = newProblem("key-invalid", http.StatusBadRequest, "Idempotency key is invalid",
		"An idempotency key has 1 to 255 printable ASCII characters and is sent once. In a header it stands in double quotes, "+
			"or bare if it has no spaces, quotes, backslashes, commas or semicolons.")
	bodyUnreadable = newProblem("body-unreadable", http.StatusBadRequest, "Request body cannot be read",
		"The body ended early or is malformed. Nothing was done.").retryable()
	userUnknown = newProblem("user-unknown", http.StatusUnauthorized, "User is unknown",
		"This operation needs an authenticated user. Nothing was done.")
	inFlight = newProblem("in-flight", http.StatusConflict, "Request is in progress",
		"A request with this idempotency key was received before and has not been answered yet. Repeat it later to get its "+
			"response.").retryable()
	runFailed = newProblem("run-failed", http.StatusServiceUnavailable, "The first request has failed",
		"The first request with this idempotency key ended and left no response. Repeat it to have it processed.").retryable()
	outcomeUnknown = newProblem("outcome-unknown", http.StatusConflict, "Outcome is unknown",
		"A request with this idempotency key was begun, and it is not known whether it took effect. It is not processed again.")
	responseNotStored = newProblem("response-not-stored", http.StatusConflict, "Response is not available again",
		"The request with this idempotency key was processed, but its response was not kept. It is not processed again.")
	fingerprintChanged = newProblem("fingerprint-changed", http.StatusConflict, "Requests cannot be compared",
		"A request with this idempotency key was processed, but the server now tells requests apart by another rule, so it "+
			"cannot tell whether this is the same request. It is not processed again. Use a new key for a new request.")
	bodyTooLarge = newProblem("body-too-large", http.StatusRequestEntityTooLarge, "Request body is too large",
		"The body is longer than this operation accepts. Nothing was done.")
	keyReused = newProblem("key-reused", http.StatusUnprocessableEntity, "Idempotency key is already used",
		"This idempotency key was used for another request. Use a new key for a new request.")
	keyFailed = newProblem("key-failed", http.StatusInternalServerError, "Idempotency key cannot be determined",
		"The server failed to determine the idempotency key. Nothing was done.")
	recordUnreadable = newProblem("record-unreadable", http.StatusInternalServerError, "Stored response is unreadable",
		"What is stored for this idempotency key cannot be read. It is not known what the request did; it is not processed again.")
	storeUnavailable = newProblem("store-unavailable", http.StatusServiceUnavailable, "Idempotency store is unavailable",
		"The server cannot tell whether this request is a repetition, so it did not process it. Repeat it later.").retryable()
	responseUnconfirmed = storeUnavailable.withDetail("A request with this idempotency key was processed, but the server " +
		"cannot confirm yet that its response is stored safely. It is not processed again. Repeat it later to get its response.")
)

// notBegun returns the problem of a request that took its key and did not run. Its key may be taken for one lease more.
func notBegun(lease time.Duration) Problem {
	return storeUnavailable.withDetail(fmt.Sprintf("The server could not begin to process this request, so nothing was done. "+
		"Repeat it later. For up to %v a repetition may be answered with 409.", lease))
}

// draft describes the header that all of this is about.
const draft = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07"

// refuse answers with a problem.
func (c *call) refuse(outcome Outcome, p Problem, err error) {
	h := c.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Add("Link", "<"+draft+`>; rel="describedby"`)
	h.Set("X-Should-Retry", strconv.FormatBool(p.Retryable))
	if p.Retryable {
		h.Set("Retry-After", strconv.Itoa(max(1, int(p.RetryAfter/time.Second))))
	}
	c.guard.writeProblem(c.w, c.r, p)
	c.emit(outcome, p.Status, err)
}

// writeProblem is the default of [WithProblem].
func writeProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	contentType, body := "application/problem+json", []byte(nil)
	if prefersHTML(r.Header.Values("Accept")) {
		contentType, body = "text/html; charset=utf-8", p.html()
	} else {
		body, _ = json.Marshal(p) // strings and numbers always marshal
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Language", "en")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may have left
}

func (p Problem) html() []byte {
	title, detail := html.EscapeString(p.Title), html.EscapeString(p.Detail)
	return fmt.Appendf(nil, `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>%s</title>
<h1>%s</h1>
<p>%s</p>
</html>
`, title, title, detail)
}
