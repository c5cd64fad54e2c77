package middleware

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/keyfunc"
)

// WithMethods sets which methods are protected, written as in the request line. The default is POST and PATCH. Requests
// with any other method pass untouched: RFC 9110 section 9.2.2 makes most of them idempotent by themselves. It panics
// on an empty list and on an empty method.
func WithMethods(methods ...string) Option {
	option.Check(len(methods) != 0, "middleware.WithMethods: no method")
	set := make(map[string]bool, len(methods))
	for _, m := range methods {
		option.Check(m != "", "middleware.WithMethods: empty method")
		set[m] = true
	}
	return func(o *options) { o.methods = set }
}

// WithRequired answers a request without a key with 400 key-missing. By default such a request runs unprotected.
func WithRequired() Option {
	return func(o *options) { o.required = true }
}

// WithKeyAge never runs a request whose key was made more than d ago. By default a key may have any age: a retry that
// comes after the retention runs again, because nothing is stored any more.
//
// part returns the client's part of the key, such as keyfunc.Header("Idempotency-Key") with [keyfunc.Standard]. If that is
// a UUID of version 7 (RFC 9562 section 5.7, 36 characters), it contains the time when it was made. If that is more than
// d ago, the key is looked up and never claimed, with a journal also there. What is there is answered as always: the
// stored response, 409 in-flight, 422 key-reused. Where nothing is, the client gets 400 key-expired, not to be retried:
// it is not known any more whether the request ran. If Redis does not answer, it gets 503, even with [WithFailOpen]. If
// the UUID was made more than an hour in the future, the client gets 400 key-invalid. Any other key is not checked, nor
// is a request for which part returns [keyfunc.ErrMissing].
//
// d is at most [WithRetention]'s time, so that every key that may run still has its response. For keys of the future,
// responses are kept for at least an hour longer than d. A shorter [Execution.Retain] gives that up for one response.
//
// The ages are by the wall clocks of the client and of this process. A client whose clock is slow by more than d gets
// key-expired for each request, so d should be hours.
//
// part is called after the key function, under the same rules, and its other errors are answered alike. It is called
// concurrently. WithKeyAge panics when d is not positive or part is nil. Idempotency panics when d is more than the
// retention.
func WithKeyAge(d time.Duration, part keyfunc.Func) Option {
	option.Check(d > 0, "middleware.WithKeyAge: %v is not positive", d)
	option.Check(part != nil, "middleware.WithKeyAge: part is nil")
	return func(o *options) { o.keyAge, o.keyPart = d, part }
}

// WithMaxBody limits the request body to n bytes. The body is read whole before the handler runs; a longer one is
// answered with 413 body-too-large. The default is 1 MiB. It panics when n is negative.
func WithMaxBody(n int64) Option {
	option.Check(n >= 0, "middleware.WithMaxBody: %d is negative", n)
	return func(o *options) { o.maxBody = n }
}

// WithFingerprint replaces the rule that tells two requests with one key apart. The default is the SHA-256 of method,
// path, query, media type and body.
//
// f is called concurrently, before the handler, with the whole body. It must not keep or change the body. Its result
// may have any length, because it is hashed. [WithJSONFingerprint] has a rule for JSON. The default rule leaves out the
// boundary of a multipart body, which clients choose anew for each try. If f hashes the boundary, a retry may get 422.
// WithFingerprint panics when name is empty or f is nil.
//
// The name is stored, hashed, with every fingerprint, and only fingerprints of the same name are compared. Change f and
// name together: under the old name, the new f would answer 422 to retries of requests that the old f has seen. What is
// stored under another name, or by the default rule, is neither compared nor replayed. A retry gets 409 in-flight while
// the first request runs, and then 409 fingerprint-changed until the record has expired.
func WithFingerprint(name string, f func(r *http.Request, body []byte) []byte) Option {
	option.Check(name != "", "middleware.WithFingerprint: name is empty")
	option.Check(f != nil, "middleware.WithFingerprint: f is nil")
	sum := func(r *http.Request, body []byte) [sha256.Size]byte {
		original := r.Body
		defer func() { r.Body = original }()
		r.Body = io.NopCloser(bytes.NewReader(body)) // f may parse a form
		return sha256.Sum256(f(r, body))
	}
	return func(o *options) { o.rules = []rule{{kind: customKind(name), sum: sum}} }
}

// WithJSONFingerprint is the default rule of [WithFingerprint], except that two JSON bodies are the same if they have
// the same values: white space, the order of an object's members and the escapes in strings do not count. ignore are
// JSON Pointers (RFC 6901) to what does not count either, such as "/sent_at" or "/items/0/trace"; a body without that
// part is the same too. Use it for clients that build the body anew for each try, and ignore only what makes no
// difference to the handler. By default the bytes are compared.
//
// A number counts as it is written: 1 and 1.0 differ, and so do numbers that are too long for a float64. A body counts by
// its bytes, ignored parts included, if two parsers may read it differently:
//
//   - It is not one JSON text in UTF-8 (RFC 8259), or is nested more than 100 deep.
//   - An object has two names that are the same or differ only in case, which encoding/json takes for the same.
//   - A string escapes half of a surrogate pair.
//
// So does a body whose media type is neither application/json nor one that ends in +json.
//
// The list of pointers is part of the rule's name: what is stored under another list, by the default rule or by
// WithFingerprint is neither compared nor replayed, as WithFingerprint describes. If both options are given, the last one
// counts. WithJSONFingerprint panics if a pointer is malformed or empty.
func WithJSONFingerprint(ignore ...string) Option {
	rules := []rule{jsonRule(ignore)}
	return func(o *options) { o.rules = rules }
}

// WithBodyFingerprint compares the bodies of requests alone, byte by byte: neither query nor media type count. By default
// both do, and the boundary of a multipart body does not, which here is part of the bytes. Use it for an API that defines
// a repetition by a digest of the body, such as Content-Digest (RFC 9530).
//
// Method and path still count: a response is never replayed to another operation, whatever the key is made of. With
// [keyfunc.Standard] they are in the key anyway. What is stored by another rule is neither compared nor replayed, as
// [WithFingerprint] describes. Of the options that set a rule the last one counts.
func WithBodyFingerprint() Option {
	return func(o *options) { o.rules = []rule{bodyRule} }
}

// WithJSONBodyFingerprint is [WithBodyFingerprint], except that two bodies are the same if they are JSON texts with the same
// values: white space, the order of an object's members, the escapes in strings and the spelling of numbers do not count. By
// default the bytes are compared. An absent member and one that is null differ, and so do arrays in another order. The media
// type does not matter.
//
// Numbers are compared as exact decimals: 1, 1.0 and 1e0 are the same, and 9007199254740993 is not 9007199254740992.
// ([WithJSONFingerprint] compares numbers as they are written.) A body that two parsers may read differently counts by its
// bytes, as WithJSONFingerprint describes, and so does one that has a number with an exponent of more than 15 digits. Two
// spellings of such a body are two requests: the second gets 422, and does not run.
func WithJSONBodyFingerprint() Option {
	return func(o *options) { o.rules = []rule{jsonBodyRule} }
}
