package keyfunc

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/internal/reread"
)

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
