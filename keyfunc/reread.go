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

// bodyConsumed reports whether body is empty only because an earlier handler has read it.
func bodyConsumed(r *http.Request, body []byte) bool {
	hadBody := r.ContentLength > 0 || len(r.PostForm) > 0 || r.MultipartForm != nil
	return len(body) == 0 && hadBody
}
