package middleware

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
)

// Fingerprint returns what the default rule makes of a request, as it is stored.
func Fingerprint(r *http.Request, body []byte) []byte {
	f := record.Fingerprint{Kind: defaultRules[0].kind, Sum: defaultRules[0].sum(r, body)}
	return f.AppendTo(nil)
}

// nextRule is a default rule of a later release.
var nextRule = rule{kind: record.Kind([]byte("default2")), sum: func(_ *http.Request, body []byte) [32]byte {
	return sha256.Sum256(body)
}}

// WithNextRuleRead makes a middleware of the release that reads the next default rule, and does not write it yet.
func WithNextRuleRead() Option {
	return func(o *options) { o.rules = append(o.rules[:1:1], nextRule) }
}

// WithNextRuleWritten makes a middleware of the release after that.
func WithNextRuleWritten() Option {
	return func(o *options) { o.rules = append([]rule{nextRule}, o.rules...) }
}

// CustomKind returns the kind of the fingerprints of WithFingerprint, as it is stored.
func CustomKind(name string) []byte {
	k := customKind(name)
	return k[:]
}

// MadeAt returns when a key was made, if it is a UUID of version 7.
func MadeAt(key string) (time.Time, bool) { return madeAt(key) }

// JSONKind returns the kind of the fingerprints of WithJSONFingerprint, as it is stored.
func JSONKind(ignore ...string) []byte {
	k := jsonRule(ignore).kind
	return k[:]
}

// JSONFingerprint returns what the rule of WithJSONFingerprint makes of a request, as it is stored.
func JSONFingerprint(r *http.Request, body []byte, ignore ...string) []byte {
	rule := jsonRule(ignore)
	f := record.Fingerprint{Kind: rule.kind, Sum: rule.sum(r, body)}
	return f.AppendTo(nil)
}

// Resolve calls the method of a Middleware with these options.
func Resolve(ctx context.Context, l *lock.Locker, storageKey, token string, said Resolution, opts ...Option) error {
	return New(l, keyfunc.Anonymous(), opts...).Resolve(ctx, storageKey, token, said)
}

// AnswerBy returns when the answer to a request must begin that has arrived then.
func AnswerBy(ctx context.Context, arrived time.Time) time.Time { return answerBy(ctx, arrived) }
