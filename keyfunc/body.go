package keyfunc

import (
	"encoding/hex"
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
)

// Body derives the key from the body, for clients that send no key: requests with the same body are one request. The
// key is the SHA-256, in hex, of the media type and the body. Parameters of the media type do not count, nor does the
// boundary of a multipart body. draft-ietf-httpapi-idempotency-key-header-07 (expired, see [Header]), section 2.4,
// calls this a fingerprint.
//
// Two equal orders, even if both are intended, are one request as long as the response is kept. Use Body only if each
// body names its subject, such as an event id, or with a retention as short as a double click. An empty body counts
// too. [Compose] it with [Route] and a user: otherwise equal bodies are one request throughout the service.
//
// Body reads the whole body and puts it back. As with [Form], it sets no limit, and returns errors of reading wrapped.
// ErrInvalid: the body is empty although its length was not known in advance. ErrMissing is never returned. The Func is
// safe for concurrent use.
func Body() Func {
	return func(r *http.Request) (string, error) {
		body, err := readBody(r)
		if err != nil {
			return "", err
		}
		if len(body) == 0 {
			if err := emptyBody("body", r); err != nil {
				return "", err
			}
		}
		sum := canonical.SumBody(nil, r.Header.Get("Content-Type"), body)
		return hex.EncodeToString(sum[:]), nil
	}
}
