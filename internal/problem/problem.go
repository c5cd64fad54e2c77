// Package problem has the words of HTTP for the answers of package run, and writes the problem responses (RFC 9457): a
// document for programs, or a page for shoppers.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
)

// Problem is an error response in the terms of RFC 9457, and the text of its HTML page.
type Problem struct {
	Document
	heading, text string // of the page
}

// Document is what a client that is a program gets. Package middleware exports it.
type Document struct {
	Type           string `json:"type"`
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Detail         string `json:"detail"`
	Instance       string `json:"instance,omitempty"`
	OriginalStatus int    `json:"original_status,omitempty"`

	FirstRunning bool       `json:"first_running,omitempty"`
	FirstEnded   *time.Time `json:"first_ended,omitempty"`

	Retryable  bool          `json:"-"`
	RetryAfter time.Duration `json:"-"`
}

// TypePrefix is what a Problem's Type begins with.
const TypePrefix = "urn:onceguard:problem:"

// IsType reports whether there are problems with this Type, after TypePrefix.
func IsType(name string) bool {
	return name != "" && slices.ContainsFunc(table[:], func(w words) bool { return w.name == name })
}

// New returns the problem of a request that is refused: kind is at least run.InFlight.
func New(kind run.Kind) Problem {
	w := &table[kind]
	p := Problem{Document{Type: TypePrefix + w.name, Title: w.title, Status: w.status, Detail: w.detail}, w.heading, w.text}
	if kind.Answer().Retry {
		p.Retryable, p.RetryAfter = true, time.Second
	}
	return p
}

// NamePlace makes the detail of a missing key name the place where it is expected, if err is a [keyfunc.MissingError]. No
// other text of a key function reaches a client, because it might repeat what the client sent.
func (p *Problem) NamePlace(err error) {
	var missing keyfunc.MissingError
	if errors.As(err, &missing) {
		p.Detail = fmt.Sprintf("This operation must carry an idempotency key in the %s %s, so that it can be repeated safely.",
			missing.In, missing.Name)
	}
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
