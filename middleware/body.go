package middleware

import (
	"io"
	"net/http"
	"strings"
)

// requestBody limits the body as http.MaxBytesReader does. It remembers whether a byte was read and why reading failed,
// because a key function may wrap or hide the error.
type requestBody struct {
	io.ReadCloser
	w         http.ResponseWriter
	limit     int64
	remaining int64 // of the limit: only shrinks
	read      bool  // a byte was read
	err       error // what every later Read returns; nil until a Read fails
}

func (b *requestBody) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if int64(len(p))-1 > b.remaining {
		p = p[:b.remaining+1] // one byte more shows whether the body is too long
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.remaining {
		n, err = int(b.remaining), b.tooLarge()
	}
	b.remaining -= int64(n)
	b.read, b.err = b.read || n > 0, err
	return n, err
}

// tooLarge makes net/http close the connection, and returns the error of http.MaxBytesReader.
func (b *requestBody) tooLarge() error {
	leaveUnread(b.w)
	return &http.MaxBytesError{Limit: b.limit}
}

// prepareAnswer is called before a response that the middleware gives instead of the handler. net/http breaks the
// connection if at least 256 KiB of the body may be unread, or any byte on a connection that it will close. A client
// that is still sending would not see the response. In that case prepareAnswer calls leaveUnread.
func (b *requestBody) prepareAnswer(r *http.Request) {
	const drained = 256 << 10 // bytes that net/http reads by itself, to use the connection again
	if b.err != nil {
		return // the body was read to its end, or leaveUnread was called
	}
	unread := r.ContentLength - (b.limit - b.remaining)
	mayBeLong := r.ContentLength < 0 || unread >= drained
	if mayBeLong || unread > 0 && r.Close {
		leaveUnread(b.w)
	}
}

// leaveUnread makes net/http close its side of the connection after the response, and the other side a moment later.
// Only an http.MaxBytesReader that overflows can ask for that, and only net/http's own writer, the innermost one,
// obeys.
func leaveUnread(w http.ResponseWriter) {
	_, _ = http.MaxBytesReader(innermost(w), io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
}

// innermost returns the writer at the end of the chain of Unwrap methods that begins with w.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// failed returns why reading failed; the end of the body is no failure.
func (b *requestBody) failed() error {
	if b.err == io.EOF {
		return nil
	}
	return b.err
}
