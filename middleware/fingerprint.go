package middleware

import (
	"crypto/sha256"
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
)

// fingerprint tells requests with the same key apart. Its first byte is the version of the rule that it was made by;
// fingerprints of two versions say nothing about each other.
type fingerprint [1 + sha256.Size]byte

// Versions of the rule. A change of what fingerprintOf hashes needs a new one, so that a rolling deployment
// takes no request for another one.
const (
	fingerprintDefault = 1
	fingerprintCustom  = 255
)

// contradicts tells whether both were made by one rule from two requests.
func (f fingerprint) contradicts(g fingerprint) bool { return f[0] == g[0] && f != g }

// fingerprintOf takes in method and path as the client sent them, query, media type and body; nothing that two
// tries of one request may differ in, such as credentials, trace ids, dates and framing.
func fingerprintOf(r *http.Request, body []byte) fingerprint {
	var room [256]byte
	fields := canonical.AppendPart(canonical.AppendRoute(room[:0], r), r.URL.RawQuery)
	return newFingerprint(fingerprintDefault, canonical.SumBody(fields, r.Header.Get("Content-Type"), body))
}

// customFingerprint returns the one of what [WithFingerprint] makes of a request.
func customFingerprint(custom []byte) fingerprint {
	return newFingerprint(fingerprintCustom, sha256.Sum256(custom))
}

func newFingerprint(rule byte, sum [sha256.Size]byte) fingerprint {
	f := fingerprint{rule}
	copy(f[1:], sum[:])
	return f
}
