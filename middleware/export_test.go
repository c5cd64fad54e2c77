package middleware

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"time"
)

// Fingerprint returns what the default rule makes of a request, as it is stored.
func Fingerprint(r *http.Request, body []byte) []byte {
	f := fingerprint{defaultRules[0].kind, defaultRules[0].sum(r, body)}
	return f.appendTo(nil)
}

// anyFingerprint is one of the default kind.
var anyFingerprint = fingerprint{defaultRules[0].kind, [32]byte{0xf1}}

// nextRule is a default rule of a later release.
var nextRule = rule{kind: kind([]byte("default2")), sum: func(_ *http.Request, body []byte) [32]byte {
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

// Problems returns all that there are, one of each type at least.
func Problems() []Problem {
	return []Problem{
		keyMissing, keyInvalid, bodyUnreadable, userUnknown, inFlight, runFailed, outcomeUnknown, responseNotStored,
		fingerprintChanged, bodyTooLarge, keyReused, keyFailed, recordUnreadable, storeUnavailable, responseUnconfirmed,
	}
}

// Refuse answers with a problem as a middleware without options does.
func Refuse(w http.ResponseWriter, r *http.Request, p Problem) {
	c := &call{guard: &guard{options: defaultOptions()}, w: w, r: r}
	c.answer(&answer{problem: p})
}

// Codec is the codec of a middleware with the options given.
type Codec struct{ codec }

func NewCodec(opts ...Option) *Codec {
	o := defaultOptions()
	for _, opt := range opts {
		opt(&o)
	}
	return &Codec{o.codec}
}

// Encode returns a record with one of everything.
func (c *Codec) Encode(storageKey string, body []byte) []byte {
	return c.appendRecord(nil, new(scratch), storageKey, record{
		fingerprint: anyFingerprint,
		completed:   time.UnixMilli(1_700_000_000_123),
		status:      201,
		header: []change{
			{opSet, "Location", []string{"/payments/1"}}, {opSet, "Content-Type", nil},
			{opAdd, "Vary", []string{"Accept", "Origin"}}, {opDelete, "X-Powered-By", nil},
		},
		trailer: []change{{opSet, "X-Checksum", []string{"abc"}}},
		body:    body,
	})
}

// Decode reads a stored record and returns it encoded again, neither compressed nor sealed.
func (c *Codec) Decode(storageKey string, b []byte) (plain []byte, ok bool) {
	r, err := c.decode(new(scratch), storageKey, b)
	if err != nil {
		return nil, false
	}
	return new(codec).appendRecord(nil, new(scratch), storageKey, r), true
}

// Reads tells whether the record reads.
func (c *Codec) Reads(storageKey string, b []byte) bool {
	_, err := c.decode(new(scratch), storageKey, b)
	return err == nil
}

// ReadNote tells whether the note reads.
func (c *Codec) ReadNote(storageKey string, note []byte) bool {
	_, err := c.decodeNote(storageKey, note)
	return err == nil
}

// Note returns a note as it is stored.
func (c *Codec) Note(storageKey string) []byte {
	return c.encodeNote(nil, storageKey, anyFingerprint)
}

// Forge returns a record whose checksum and seal are right, whatever the content is.
func (c *Codec) Forge(storageKey string, flags byte, content []byte) []byte {
	b := append(make([]byte, contentAt), content...)
	if len(c.keys) > 0 {
		flags |= flagSealed
		b = c.keys.seal(recordPurpose, storageKey, []byte{recordVersion, flags}, b, contentAt)
	}
	b[0], b[flagsAt] = recordVersion, flags
	PutChecksum(storageKey, b)
	return b
}

// ForgeNote returns a note whose seal is right, whatever the content is.
func (c *Codec) ForgeNote(storageKey string, content []byte) []byte {
	if len(c.keys) == 0 {
		return append([]byte{notePlain}, content...)
	}
	return c.keys.seal(notePurpose, storageKey, []byte{noteSealed}, append([]byte{noteSealed}, content...), 1)
}

// PutChecksum puts the right checksum into b, so that a test reaches what is behind it. Too short a one is left alone.
func PutChecksum(storageKey string, b []byte) {
	if len(b) >= flagsAt {
		binary.BigEndian.PutUint32(b[checksumAt:], checksum([]byte(storageKey), b))
	}
}

// Deflate returns the length of b, and b compressed, as a record holds it, if that is shorter.
func Deflate(b []byte) ([]byte, bool) { return deflate(make([]byte, 0, len(b)), b) }

const (
	FlagTombstone  = flagTombstone
	FlagCompressed = flagCompressed
	FlagSealed     = flagSealed

	RecordPurpose = recordPurpose
	NotePurpose   = notePurpose
)
