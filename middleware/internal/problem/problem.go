// Package problem has the problem responses (RFC 9457): their texts, for programs and for shoppers, and which of the two
// a client gets.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
)

// Problem is an error response in the terms of RFC 9457, and the text of its HTML page.
type Problem struct {
	Type           string `json:"type"`
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Detail         string `json:"detail"`
	Instance       string `json:"instance,omitempty"`
	OriginalStatus int    `json:"original_status,omitempty"`

	Retryable  bool          `json:"-"`
	RetryAfter time.Duration `json:"-"`

	page pageText
}

func define(name string, status int, title, detail string) Problem {
	return Problem{Type: "urn:onceguard:problem:" + name, Title: title, Status: status, Detail: detail}
}

// withDetail returns p with another detail.
func (p Problem) withDetail(detail string) Problem {
	p.Detail = detail
	return p
}

// retryable returns p for a request that may succeed when it is repeated, after a second or more.
func (p Problem) retryable() Problem {
	p.Retryable, p.RetryAfter = true, time.Second
	return p
}

// MissingFrom returns KeyMissing with a detail that names the place where the key is expected, if err is a
// [keyfunc.MissingError]. No other text of a key function reaches a client, because it might repeat what the client
// sent.
func MissingFrom(err error) Problem {
	p := KeyMissing
	var missing keyfunc.MissingError
	if errors.As(err, &missing) {
		p.Detail = fmt.Sprintf("This operation must carry an idempotency key in the %s %s, so that it can be repeated safely.",
			missing.In, missing.Name)
	}
	return p
}

// The problems. Those of one Type have the same Title, Status and Retryable.
var (
	KeyMissing = define("key-missing", http.StatusBadRequest, "Idempotency key is missing",
		"This operation must carry an idempotency key, so that it can be repeated safely.").withPage(
		"This form cannot be sent",
		"The page that you sent it from may be out of date. Nothing was done. Go back, reload the page and "+
			"send the form again.")
	KeyInvalid = define("key-invalid", http.StatusBadRequest, "Idempotency key is invalid",
		"An idempotency key has 1 to 255 printable ASCII characters and must be sent exactly once. In a header it stands in double quotes, "+
			"or bare if it has no spaces, quotes, backslashes, commas or semicolons.").withPage(
		KeyMissing.page.heading, KeyMissing.page.text)
	// A key-invalid with another detail.
	KeyOfFuture = KeyInvalid.withDetail("This idempotency key was made more than an hour in the future. Nothing was done. "+
		"Set the clock of the client right, and use a new key.").withPage(
		"This form cannot be sent",
		"The clock of your device seems to be wrong. Nothing was done. Set it right, reload the page and send the form again.")
	KeyExpired = define("key-expired", http.StatusBadRequest, "Idempotency key is too old",
		"This idempotency key is older than what the server remembers, so it cannot tell whether the request was processed before. "+
			"It is not processed now. Find out whether it was before you use a new key.").withPage(
		"This form is too old",
		"We no longer know whether you have sent this form before. It is not processed now. Please check, or ask us, before "+
			"you send a new one.")
	BodyUnreadable = define("body-unreadable", http.StatusBadRequest, "Request body cannot be read",
		"The body ended early or is malformed. Nothing was done.").retryable().withPage(
		"We did not receive everything",
		"The connection was interrupted while you sent the form. Nothing was done. Reload this page to send "+
			"it again.")
	UserUnknown = define("user-unknown", http.StatusUnauthorized, "User is unknown",
		"This operation needs an authenticated user. Nothing was done.").withPage(
		"Please sign in",
		"You have to be signed in for this. Nothing was done.")
	InFlight = define("in-flight", http.StatusConflict, "First request has no result yet",
		"A request with this idempotency key was received before and has no result yet. Repeat it later to get its "+
			"result.").retryable().withPage(
		"We have received this already",
		"The form was sent more than once, and the first time has no result yet. It counts only once. "+
			"Reload this page in a moment to see the result.")
	RunFailed = define("run-failed", http.StatusServiceUnavailable, "The first request has failed",
		"The first request with this idempotency key ended and left no response. Repeat it to have it processed.").retryable().withPage(
		"That did not work",
		"The form was received, and something went wrong before there was a result. Reload this page to try "+
			"again.")
	OutcomeUnknown = define("outcome-unknown", http.StatusConflict, "Outcome is unknown",
		"A request with this idempotency key was started, and it is not known whether it took effect. It is not processed again.").withPage(
		"We do not know whether this has worked",
		"The form was received, and something went wrong before there was a result. It is not processed again "+
			"by itself. Please check, or ask us, before you send a new one.")
	// An outcome-unknown that will be known.
	OutcomeUnknownYet = OutcomeUnknown.withDetail("A request with this idempotency key was started, and it is not known yet "+
		"whether it took effect. It is not processed again before that is known. Repeat it later with the same key to find "+
		"out.").retryable().withPage(
		"We do not know yet whether this has worked",
		"The form was received, and something went wrong before there was a result. We are finding out. Reload this page in "+
			"a few minutes to see the result. It will not happen twice.")
	ResponseNotStored = define("response-not-stored", http.StatusConflict, "Response is not available again",
		"The request with this idempotency key was processed, but its response was not kept. It is not processed again.").withPage(
		"This has already been processed",
		"The form was processed when you sent it before. Its result cannot be shown here again.")
	// A response-not-stored with another detail, and never with an OriginalStatus.
	UnknownNotStored = ResponseNotStored.withDetail("A request with this idempotency key was started, and it is not known "+
		"whether it took effect. Its response was not kept. It is not processed again.").withPage(
		OutcomeUnknown.page.heading, OutcomeUnknown.page.text)
	FingerprintChanged = define("fingerprint-changed", http.StatusConflict, "Requests cannot be compared",
		"A request with this idempotency key was processed, but the server now tells requests apart by another rule, so it "+
			"cannot tell whether this is the same request. It is not processed again. Use a new key for a new request.").withPage(
		"This has already been processed",
		"A form from this page was processed before, and we cannot tell whether it was the same. Please check "+
			"before you send a new one.")
	BodyTooLarge = define("body-too-large", http.StatusRequestEntityTooLarge, "Request body is too large",
		"The body is longer than this operation accepts. Nothing was done.").withPage(
		"This is too large",
		"What you sent is larger than we can accept. Nothing was done.")
	KeyReused = define("key-reused", http.StatusUnprocessableEntity, "Idempotency key is already used",
		"This idempotency key was used for another request. Use a new key for a new request.").withPage(
		"You have already sent this form",
		"You have already sent this form with different details, and the first version counts. To send a new one, "+
			"go back and reload the page first.")
	KeyFailed = define("key-failed", http.StatusInternalServerError, "Idempotency key cannot be determined",
		"The server failed to determine the idempotency key. Nothing was done.").withPage(
		"Something went wrong",
		"The fault is ours. Nothing was done. Please try again later.")
	RecordUnreadable = define("record-unreadable", http.StatusInternalServerError, "Stored response is unreadable",
		"What is stored for this idempotency key cannot be read. It is not known what the request did; it is not processed again.").withPage(
		"We do not know whether this has worked",
		"The form was received before, and its result cannot be shown. It is not processed again. Please "+
			"check, or ask us, before you send a new one.")
	StoreUnavailable = define("store-unavailable", http.StatusServiceUnavailable, "Idempotency store is unavailable",
		"The server cannot tell whether this request is a repetition, so it did not process it. Repeat it later.").retryable().withPage(
		"Please try again in a moment",
		"We cannot accept the form right now. Reload this page in a moment to send it again.")
	// A store-unavailable with another detail.
	ResponseUnconfirmed = StoreUnavailable.withDetail("A request with this idempotency key was processed, but the server "+
		"cannot confirm yet that its response is stored safely. It is not processed again. Repeat it later to get its response.").withPage(
		"This has already been processed",
		"Its result cannot be shown yet. Reload this page in a moment to see it.")
	CommitUnknown = define("commit-unknown", http.StatusServiceUnavailable, "Outcome is not known yet",
		"It is not known yet whether this request took effect. Repeat it with the same key to find out.").retryable().withPage(
		"We do not know yet whether this went through",
		"Reload this page in a moment to find out. It will not happen twice.")
)

// NotBegun returns the problem of a request that claimed its key and did not run. The key may stay claimed for one more
// lease.
func NotBegun(lease time.Duration) Problem {
	return StoreUnavailable.withDetail(fmt.Sprintf("The server could not start to process this request, so nothing was done. "+
		"Repeat it later. For up to %v a repetition may be answered with 409.", lease))
}

// instancePrefix is what a Problem's Instance begins with.
const instancePrefix = "urn:onceguard:key:"

// Instance returns the Instance of a problem about a key, by which support staff find the key: the hash alone, because
// clients need not see the namespace.
func Instance(storageKey string) string {
	if storageKey == "" {
		return ""
	}
	return instancePrefix + storageKey[strings.LastIndexByte(storageKey, '}')+1:]
}

// draft specifies the Idempotency-Key header. Every problem links to it. Version -07 expired on 2026-04-18 and stays
// readable at this address.
const draft = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07"

// SetHeader sets the header fields that all problems have.
func (p *Problem) SetHeader(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Should-Retry", strconv.FormatBool(p.Retryable))
	if p.Retryable {
		h.Set("Retry-After", strconv.Itoa(max(1, int(p.RetryAfter/time.Second))))
	}
	h.Add("Link", "<"+draft+`>; rel="describedby"`)
}

// Write writes p as application/problem+json, or as a small HTML page for a client that prefers HTML.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request) {
	contentType, body := "application/problem+json", []byte(nil)
	if prefersHTML(r.Header.Values("Accept")) {
		contentType, body = "text/html; charset=utf-8", p.html(r)
		w.Header().Add("Content-Security-Policy", pagePolicy) // an outer policy still applies, too
	} else {
		body, _ = json.Marshal(p) // strings and numbers always marshal
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Language", "en")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // an error means that the client disconnected
}
