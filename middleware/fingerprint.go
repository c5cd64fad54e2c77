package middleware

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/middleware/internal/record"
)

// The kinds of default rules are ASCII, and those of custom rules have the top bit of their first byte set, so that no
// custom kind equals a default one.

// customKind returns the kind of the rule that [WithFingerprint] calls name.
func customKind(name string) record.Kind {
	sum := sha256.Sum256([]byte("onceguard fingerprint " + name))
	k := record.Kind(sum[:len(record.Kind{})])
	k[0] |= 0x80
	return k
}

// rule makes fingerprints of one kind.
type rule struct {
	kind  record.Kind
	sum   func(r *http.Request, body []byte) [sha256.Size]byte
	lends bool // sum passes the body to a function that may keep it
}

// defaultRules apply without [WithFingerprint]. The first one makes the fingerprint that is stored; a stored fingerprint
// of any of them can be compared. What a rule hashes never changes: a change is a new rule, which one release reads
// before the next one writes it, so that a rolling deployment refuses no request.
var defaultRules = []rule{{kind: record.Kind([]byte("default1")), sum: sumDefault}}

// sumDefault hashes method and path as the client sent them, query, media type and body; nothing that two tries of one
// request may differ in, such as credentials, trace ids, dates and framing.
func sumDefault(r *http.Request, body []byte) [sha256.Size]byte {
	var room [256]byte
	fields := canonical.AppendPart(canonical.AppendRoute(room[:0], r), r.URL.RawQuery)
	return canonical.SumBody(fields, r.Header.Get("Content-Type"), body)
}

// takeFingerprints makes the request's fingerprint by each rule. It makes all of them now because the body is gone when
// a waiter, or a run that lost its lease, compares its request with what is stored.
func (c *call) takeFingerprints() {
	id := &c.identity
	id.fingerprints = id.fingerprint[:0]
	for _, rule := range c.rules {
		if rule.lends {
			id.body.SetLent(true)
			original := c.r.Body
			c.r.Body = io.NopCloser(bytes.NewReader(id.body.Bytes())) // it may ask for a form value
			defer func() { c.r.Body = original }()
		}
		id.fingerprints = append(id.fingerprints, record.Fingerprint{Kind: rule.kind, Sum: rule.sum(c.r, id.body.Bytes())})
	}
}

// resemblance is what a stored fingerprint says of a request.
type resemblance int

const (
	same         resemblance = iota // it was made of the same request
	different                       // it was made of another request
	incomparable                    // it is of a kind that no rule makes
)

// compare compares the request with the one that a stored fingerprint was made of.
func (c *call) compare(stored record.Fingerprint) resemblance {
	for _, f := range c.identity.fingerprints {
		switch {
		case f == stored:
			return same
		case f.Kind == stored.Kind:
			return different
		}
	}
	return incomparable
}
