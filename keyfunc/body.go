package keyfunc

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
	"github.com/onceguard/onceguard/internal/reread"
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

// errBodyConsumed wraps none of ErrMissing, ErrInvalid and ErrNoUser: it is a fault of the server. If a consumed body
// counted as an empty one, the request would be unprotected, or the same as all others.
var errBodyConsumed = errors.New("keyfunc: the body was read before and not put back")

// readBody reads the whole body and puts it back: the next reader of r.Body gets the same bytes, and then the same
// io.EOF or error.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	data, err := io.ReadAll(r.Body)
	again, end := new(reread.Body), io.EOF
	if err != nil {
		end = err
		err = fmt.Errorf("keyfunc: reading the body: %w", err)
	}
	again.Begin(data, end, r.Body)
	r.Body = again
	return data, err
}

// emptyBody returns why a request whose body is empty has no key, or nil if it may count as a request without a body. A
// length that was announced, or a parsed form, shows that an earlier handler has read the body. Without a length, as in
// chunks or on HTTP/2, nothing tells a body that was read from one that was sent empty: that is an ErrInvalid.
func emptyBody(place string, r *http.Request) error {
	switch {
	case r.ContentLength > 0, len(r.PostForm) > 0, r.MultipartForm != nil:
		return errBodyConsumed
	case r.ContentLength < 0:
		return invalid(place, "cannot be read: the body is empty, or was read before and not put back")
	}
	return nil
}
