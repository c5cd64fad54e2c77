package middleware

import (
	"crypto/sha256"
	"fmt"
	"net/http"
)

// WithMethods sets which methods are protected, written as in the request line. The default is POST and PATCH. Requests
// with any other method pass untouched: RFC 9110 section 9.2.2 makes most of them idempotent by themselves. It panics
// on an empty list and on an empty method.
func WithMethods(methods ...string) Option {
	if len(methods) == 0 {
		panic("middleware.WithMethods: no method")
	}
	set := make(map[string]bool, len(methods))
	for _, m := range methods {
		if m == "" {
			panic("middleware.WithMethods: empty method")
		}
		set[m] = true
	}
	return func(o *options) { o.methods = set }
}

// WithRequired answers a request without a key with 400 key-missing. By default such a request runs unprotected.
func WithRequired() Option {
	return func(o *options) { o.required = true }
}

// WithMaxBody limits the request body to n bytes. The body is read whole before the handler runs; a longer one is
// answered with 413 body-too-large. The default is 1 MiB. It panics when n is negative.
func WithMaxBody(n int64) Option {
	if n < 0 {
		panic(fmt.Sprintf("middleware.WithMaxBody: %d is negative", n))
	}
	return func(o *options) { o.maxBody = n }
}

// WithFingerprint replaces the rule that tells two requests with one key apart. The default is the SHA-256 of method,
// path, query, media type and body.
//
// f is called concurrently, before the handler, with the whole body. It must not keep or change the body. Its result
// may have any length, because it is hashed. The default rule leaves out the boundary of a multipart body, which
// clients choose anew for each try. If f hashes the boundary, a retry may get 422. WithFingerprint panics when name is
// empty or f is nil.
//
// The name is stored, hashed, with every fingerprint, and only fingerprints of the same name are compared. Change f and
// name together: under the old name, the new f would answer 422 to retries of requests that the old f has seen. What is
// stored under another name, or by the default rule, is neither compared nor replayed. A retry gets 409 in-flight while
// the first request runs, and then 409 fingerprint-changed until the record has expired.
func WithFingerprint(name string, f func(r *http.Request, body []byte) []byte) Option {
	if name == "" {
		panic("middleware.WithFingerprint: name is empty")
	}
	if f == nil {
		panic("middleware.WithFingerprint: f is nil")
	}
	sum := func(r *http.Request, body []byte) [sha256.Size]byte { return sha256.Sum256(f(r, body)) }
	return func(o *options) { o.rules = []rule{{kind: customKind(name), sum: sum, lends: true}} }
}
