package keyfunc

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// errBodyGone is none of the three sentinels: taking a body that somebody else used up for an empty
// one would leave the request unprotected, or make it equal to all others.
var errBodyGone = errors.New("keyfunc: the body was read before and not put back")

// readBody reads the body whole and puts it back: the next reader of r.Body gets the same bytes and
// the same end, be it io.EOF or the error that ended the reading.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	data, err := io.ReadAll(r.Body)
	again := &reread{rest: data, end: io.EOF, Closer: r.Body}
	if err != nil {
		again.end = err
		err = fmt.Errorf("keyfunc: reading the body: %w", err)
	}
	r.Body = again
	return data, err
}

// bodyGone reports whether body is empty only because somebody else has read it.
func bodyGone(r *http.Request, body []byte) bool {
	return len(body) == 0 && (r.ContentLength > 0 || len(r.PostForm) > 0 || r.MultipartForm != nil)
}

type reread struct {
	rest []byte
	end  error
	io.Closer
}

func (b *reread) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, b.end
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
