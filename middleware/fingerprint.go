package middleware

import (
	"crypto/sha256"
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/keyfunc"
)

// fingerprint tells requests with the same key apart. Its first byte is the version of the rule that it was made by;
// fingerprints of two versions say nothing about each other.
type fingerprint [1 + sha256.Size]byte

// Versions of the rule. A change of what defaultFingerprinter hashes needs a new one, so that a rolling deployment
// takes no request for another one.
const (
	fingerprintDefault = 1
	fingerprintCustom  = 255
)

// contradicts tells whether both were made by one rule from two requests.
func (f fingerprint) contradicts(g fingerprint) bool { return f[0] == g[0] && f != g }

type fingerprinter func(r *http.Request, body []byte) fingerprint

var route = keyfunc.Route()

// defaultFingerprinter takes in method and path as the client sent them, query, media type and body; nothing that two
// tries of one request may differ in, such as credentials, trace ids, dates and framing.
func defaultFingerprinter(r *http.Request, body []byte) fingerprint {
	target, _ := route(r) // it never fails
	h := sha256.New()
	canonical.Field(h, target)
	canonical.Field(h, r.URL.RawQuery)
	canonical.Body(h, r.Header.Get("Content-Type"), body)
	f := fingerprint{fingerprintDefault}
	h.Sum(f[:1])
	return f
}

func customFingerprinter(custom func(*http.Request, []byte) []byte) fingerprinter {
	return func(r *http.Request, body []byte) fingerprint {
		f := fingerprint{fingerprintCustom}
		sum := sha256.Sum256(custom(r, body))
		copy(f[1:], sum[:])
		return f
	}
}
