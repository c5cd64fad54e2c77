package keyfunc

import (
	"encoding/hex"
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
)

// Body needs no key from the client: the same body is the same request. The key is the SHA-256, in hex,
// of the media type and the body. Parameters of the media type do not count, and a multipart body
// counts by its parts, not by its boundary. What draft-ietf-httpapi-idempotency-key-header-07, section 2.4,
// calls a fingerprint stands in for the key itself.
//
// The trap: two equal orders that were both meant are one, for as long as the response is kept. Use
// it where the body names what it is about (an event's id, an invoice number), or with a retention
// as short as a double click. An empty body is a body like any other. Compose it with [Route] and a
// user, or equal bodies are one request all over the service.
//
// The body is read whole, and left to be read again; what [Form] says about limits and about errors
// while reading holds here too. There is neither ErrMissing nor ErrInvalid. The Func is safe for
// concurrent use.
func Body() Func {
	return func(r *http.Request) (string, error) {
		body, err := readBody(r)
		if err != nil {
			return "", err
		}
		if bodyGone(r, body) {
			return "", errBodyGone
		}
		sum := canonical.SumBody(nil, r.Header.Get("Content-Type"), body)
		return hex.EncodeToString(sum[:]), nil
	}
}
