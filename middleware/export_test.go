package middleware

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/problem"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Fingerprint returns what the default rule makes of a request, as it is stored.
func Fingerprint(r *http.Request, body []byte) []byte {
	f := record.Fingerprint{Kind: defaultRules[0].kind, Sum: defaultRules[0].sum(r, body)}
	return f.AppendTo(nil)
}

// anyFingerprint is one of the default kind.
var anyFingerprint = record.Fingerprint{Kind: defaultRules[0].kind, Sum: [32]byte{0xf1}}

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

// Problems returns all that there are, one of each type at least.
func Problems() []Problem {
	var all []Problem
	for _, p := range everyProblem {
		all = append(all, publicProblem(p))
	}
	return all
}

var everyProblem = []*problem.Problem{
	&problem.KeyMissing, &problem.KeyInvalid, &problem.KeyOfFuture, &problem.KeyExpired, &problem.BodyUnreadable,
	&problem.UserUnknown, &problem.InFlight, &problem.RunFailed, &problem.OutcomeUnknown, &problem.ResponseNotStored,
	&problem.UnknownNotStored, &problem.FingerprintChanged, &problem.BodyTooLarge, &problem.KeyReused, &problem.KeyFailed,
	&problem.RecordUnreadable, &problem.StoreUnavailable, &problem.ResponseUnconfirmed, &problem.CommitUnknown,
}

// Refuse answers with a problem as a middleware without options does.
func Refuse(w http.ResponseWriter, r *http.Request, p Problem) {
	inner := &problem.Problem{Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Retryable: p.Retryable, RetryAfter: p.RetryAfter}
	for _, known := range everyProblem {
		if publicProblem(known) == p {
			inner = known
		}
	}
	x := &exchange{m: &Middleware{options: defaultOptions()}, w: w, r: r}
	x.refuse(&refusal{problem: inner})
}

// Resolve calls the method of a Middleware with these options.
func Resolve(ctx context.Context, l *lock.Locker, storageKey, token string, said Resolution, opts ...Option) error {
	return New(l, keyfunc.Anonymous(), opts...).Resolve(ctx, storageKey, token, said)
}

// Codec is the codec of a middleware with the options given.
type Codec struct{ codec record.Codec }

func NewCodec(opts ...Option) *Codec {
	o := defaultOptions()
	for _, opt := range opts {
		opt(&o)
	}
	return &Codec{o.codec}
}

// Encode returns a record with one of everything.
func (c *Codec) Encode(storageKey string, body []byte) []byte {
	r := record.Record{Fingerprint: anyFingerprint, Completed: time.UnixMilli(1_700_000_000_123)}
	r.Head, r.Body, _ = new(response.Scratch).Payload(&response.Response{
		Status: 201,
		Header: []response.Change{
			{Op: response.OpSet, Name: "Location", Values: []string{"/payments/1"}},
			{Op: response.OpSet, Name: "Content-Type"},
			{Op: response.OpAdd, Name: "Vary", Values: []string{"Accept", "Origin"}},
			{Op: response.OpDelete, Name: "X-Powered-By"},
		},
		Trailer: []response.Change{{Op: response.OpSet, Name: "X-Checksum", Values: []string{"abc"}}},
		Body:    body,
	})
	return c.codec.Append(nil, storageKey, &r)
}

// Decode reads a stored record and returns it encoded again, without an extension, neither compressed nor encrypted.
func (c *Codec) Decode(storageKey string, b []byte) (plain []byte, ok bool) {
	r, err := c.codec.Decode(storageKey, b)
	if err != nil || !r.Tombstone && new(response.Scratch).Decode(r.Body) != nil {
		return nil, false
	}
	r.Trace, r.Unknown = record.Trace{}, false
	return new(record.Codec).Append(nil, storageKey, &r), true
}

// StoredTraceparent returns what a replay tells of a traceparent.
func StoredTraceparent(traceparent string) string { return record.ParseTrace(traceparent).String() }

// Reads tells whether the record reads.
func (c *Codec) Reads(storageKey string, b []byte) bool {
	_, ok := c.Decode(storageKey, b)
	return ok
}

// ReadNote tells whether the note reads.
func (c *Codec) ReadNote(storageKey string, note []byte) bool {
	_, err := c.codec.DecodeNote(storageKey, note)
	return err == nil
}

// Note returns a note as it is stored.
func (c *Codec) Note(storageKey string) []byte {
	return c.codec.EncodeNote(nil, storageKey, record.Note{Fingerprint: anyFingerprint})
}

// Forge returns a record whose checksum and encryption are right, whatever the content is.
func (c *Codec) Forge(storageKey string, flags byte, content []byte) []byte {
	b := append(make([]byte, record.ContentAt), content...)
	if len(c.codec.Keys) > 0 {
		flags |= record.FlagEncrypted
		b = c.codec.Keys.Encrypt(record.RecordPurpose, storageKey, []byte{record.Version, flags}, b, record.ContentAt)
	}
	b[0], b[record.FlagsAt] = record.Version, flags
	PutChecksum(storageKey, b)
	return b
}

// ForgeNote returns a note whose encryption is right, whatever the content is.
func (c *Codec) ForgeNote(storageKey string, content []byte) []byte {
	if len(c.codec.Keys) == 0 {
		return append([]byte{record.NotePlain}, content...)
	}
	return c.codec.Keys.Encrypt(record.NotePurpose, storageKey, []byte{record.NoteEncrypted}, append([]byte{record.NoteEncrypted}, content...), 1)
}

// PutChecksum puts the right checksum into b, so that a test reaches what is behind it. Too short a one is left alone.
func PutChecksum(storageKey string, b []byte) {
	if len(b) >= record.FlagsAt {
		binary.BigEndian.PutUint32(b[record.ChecksumAt:], record.Checksum(storageKey, b))
	}
}

// Deflate returns the length of b, and b compressed, as a record holds it, if that is shorter.
func Deflate(b []byte) ([]byte, bool) { return record.Deflate(make([]byte, 0, len(b)), b) }

const (
	FlagTombstone  = record.FlagTombstone
	FlagCompressed = record.FlagCompressed
	FlagEncrypted  = record.FlagEncrypted

	RecordPurpose = record.RecordPurpose
	NotePurpose   = record.NotePurpose
)
