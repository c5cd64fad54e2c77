package middleware

import (
	"crypto/sha256"
	"net/http"
	"slices"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/record"
)

// The kinds of default rules are ASCII, and those of custom rules have the top bit of their first byte set, so that no
// custom kind equals a default one.

// customKind returns the kind of the rule that [WithFingerprint] was given under this name.
func customKind(name string) record.Kind { return hashedKind("onceguard fingerprint " + name) }

// hashedKind returns the kind of a custom rule, by a text that no other rule has.
func hashedKind(text string) record.Kind {
	sum := sha256.Sum256([]byte(text))
	k := record.Kind(sum[:len(record.Kind{})])
	k[0] |= 0x80
	return k
}

// rule makes fingerprints of one kind.
type rule struct {
	kind record.Kind
	sum  func(r *http.Request, body []byte) [sha256.Size]byte
}

// defaultRules apply without [WithFingerprint]. The first rule makes the fingerprint that is stored; a stored
// fingerprint of any of the rules can be compared. What a rule hashes never changes. A change is a new rule: one
// release compares by it before the next one stores it, so that a rolling deployment refuses no request.
var defaultRules = []rule{{kind: record.Kind([]byte("default1")), sum: sumDefault}}

// sumDefault hashes method and path as the client sent them, query, media type and body. It leaves out what two tries
// of one request may differ in, such as credentials, trace ids, dates and framing.
func sumDefault(r *http.Request, body []byte) [sha256.Size]byte {
	var room [256]byte
	return canonical.SumBody(appendFields(room[:0], r), r.Header.Get("Content-Type"), body)
}

// appendFields appends method, path and query.
func appendFields(dst []byte, r *http.Request) []byte {
	return canonical.AppendPart(canonical.AppendRoute(dst, r), r.URL.RawQuery)
}

// jsonRule returns the rule of [WithJSONFingerprint]. Its kind names the pointers, in any order.
func jsonRule(ignore []string) rule {
	ignored, err := canonical.ParsePointers(ignore)
	option.Check(err == nil, "middleware.WithJSONFingerprint: %v", err)
	name := []byte("onceguard JSON fingerprint 1 ")
	for _, pointer := range slices.Compact(slices.Sorted(slices.Values(ignore))) {
		name = canonical.AppendPart(name, pointer)
	}
	return rule{kind: hashedKind(string(name)), sum: func(r *http.Request, body []byte) [sha256.Size]byte {
		var room [256]byte
		return canonical.SumJSON(appendFields(room[:0], r), r.Header.Get("Content-Type"), body, ignored)
	}}
}

// The rules of [WithBodyFingerprint] and [WithJSONBodyFingerprint]. They hash the route too: under a key without the route,
// the same body sent to another operation is another request.
var (
	bodyRule = rule{kind: hashedKind("onceguard body fingerprint 1"), sum: func(r *http.Request, body []byte) [sha256.Size]byte {
		var room [256]byte
		return canonical.SumBytes(canonical.AppendRoute(room[:0], r), body)
	}}
	jsonBodyRule = rule{kind: hashedKind("onceguard JSON body fingerprint 1"), sum: func(r *http.Request, body []byte) [sha256.Size]byte {
		var room [256]byte
		return canonical.SumValues(canonical.AppendRoute(room[:0], r), body)
	}}
)
