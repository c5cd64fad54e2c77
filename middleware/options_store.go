package middleware

import (
	"fmt"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/record"
)

// WithRetention says how long a stored response is replayed, counted from when the handler was done. The default is
// 24 h; [Execution.Retain] changes it for one response. It panics below a millisecond.
func WithRetention(d time.Duration) Option {
	if d < time.Millisecond {
		panic(fmt.Sprintf("middleware.WithRetention: %v is below a millisecond", d))
	}
	return func(o *options) { o.retention = d }
}

// WithStored says by their status which responses are stored. What is not stored frees the key: a retry runs again. The
// default is [StoreDefault]. With [WithAtMostOnce] a response of 500 and above is stored whatever f says. It panics when
// f is nil; f is called concurrently.
func WithStored(f func(status int) bool) Option {
	if f == nil {
		panic("middleware.WithStored: f is nil")
	}
	return func(o *options) { o.stored = f }
}

// StoreDefault stores every final status but those that say that this request was not carried out, or not because of
// what it asks: 401, 403, 404, 405, 408, 415, 425, 429, and the server's errors from 500 on. A retry of these runs
// again.
func StoreDefault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusUnsupportedMediaType, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status < 500
}

// StoreAll stores every response, so that no handler that answered runs again.
func StoreAll(int) bool { return true }

// WithMaxResponse limits the bytes of a response's body that are held back and stored. A longer response goes out as it is
// written, and a duplicate is answered with 409 response-not-stored. The default is 1 MiB. It panics when n is negative.
func WithMaxResponse(n int) Option {
	if n < 0 {
		panic(fmt.Sprintf("middleware.WithMaxResponse: %d is negative", n))
	}
	return func(o *options) { o.maxResponse = n }
}

// WithCookies keeps Set-Cookie in stored responses. The default is to leave it out and to say [CookiesDropped]: a
// cookie is often a credential, and a replay a day later would set yesterday's.
func WithCookies() Option {
	return func(o *options) { o.cookies = true }
}

// WithCompression compresses, before it is sealed, what is stored of a response if that has min bytes or more: status,
// header and body, with DEFLATE at its fastest level. What does not get smaller is stored as it is. All instances read
// both, whatever their options are. The default is not to compress. It panics when min is negative.
//
// JSON in Redis 7.0 (MEMORY USAGE), and the time that it takes to encode and to decode a record without and with:
//
//	  1 KiB      1400 B       760 B     write 1 µs   20 µs    read  1 µs   14 µs
//	 16 KiB     20600 B      5240 B     write 5 µs  150 µs    read  2 µs   85 µs
//	256 KiB    327800 B     82040 B     write 70 µs 2.7 ms    read 15 µs  1.5 ms
//
//	go test -run '^$' -bench 'Compression|Record' ./middleware
//
// Below 1 KiB it is seldom worth it. Each concurrent compression takes 1.2 MB of memory, which is used again.
//
// How well something compresses shows in its size, also when it is sealed: do not use it where one response has a
// secret beside text that an attacker chooses, if the attacker can see sizes in Redis (the attacks CRIME and BREACH).
func WithCompression(min int) Option {
	if min < 0 {
		panic(fmt.Sprintf("middleware.WithCompression: %d is negative", min))
	}
	return func(o *options) { o.codec.Compress, o.codec.CompressMin = true, min }
}

// WithEncryption seals what is stored, with AES-256-GCM: responses, and what a request in flight says of itself, each
// with its fingerprint. The first key seals, every key opens. A key is 32 random bytes from a secret store, and never
// logged; keys are copied. The default is to seal nothing. It panics when there is no key, or one of another length.
//
// Each storage key has a key of its own, derived with HKDF-SHA-256 (RFC 5869), so that no key sees more than a few
// random nonces (NIST SP 800-38D section 8.3). The storage key, version and flags are authenticated: what was
// changed, or copied under another key, does not open. What does not open, or is not sealed, is answered with
// 500 record-unreadable, and Event.Err says why; nothing runs, not with [WithFailOpen] either. Without WithEncryption
// that is the answer to all that is sealed.
//
// A reader of Redis still sees the hashed keys, the tokens and holds of leases, when something was written and when
// it ends, its size, and whether it is a response, compressed, or too long to have been kept. A writer
// can still delete a record, or put an older one of the same key back.
//
// To change the key, give all instances the new one as the last; when all have it, as the first; and when the longest
// retention has passed since, without the old one. To switch encryption on, see [WithPlaintextReads].
//
// To seal or to open takes about 2 µs and 0.25 µs for each KiB. A first request and a replay do it twice, once for the
// claim:
//
//	go test -run '^$' -bench Record ./middleware
func WithEncryption(keys ...[]byte) Option {
	if len(keys) == 0 {
		panic("middleware.WithEncryption: no key")
	}
	ring := make(record.Keyring, len(keys))
	for i, key := range keys {
		if len(key) != record.KeySize {
			panic(fmt.Sprintf("middleware.WithEncryption: key %d has %d bytes, not %d", i+1, len(key), record.KeySize))
		}
		ring[i] = record.Extract(key)
	}
	return func(o *options) { o.codec.Keys = ring }
}

// WithPlaintextReads also reads what is not sealed. It is for the day when [WithEncryption] is switched on: give it
// together with that, and take it away when the longest retention has passed since the last instance without encryption
// was gone. Such an instance answers 500 record-unreadable to a repetition of what another has sealed; nothing runs
// twice. As long as it is given, everybody who can write to Redis can put a response there. Idempotency panics when it is given
// without WithEncryption.
func WithPlaintextReads() Option {
	return func(o *options) { o.codec.PlaintextReads = true }
}
