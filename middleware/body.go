package middleware

import (
	"io"
	"net/http"
	"strings"
)

// requestBody is the client's body, of which at most limit bytes are read. It remembers how much was read and why reading
// failed, because a key function may wrap or hide the error.
type requestBody struct {
	io.ReadCloser // the client's
	w             http.ResponseWriter
	limit         int64
	read          int64 // bytes that were read: only grows, to limit at most
	err           error // what every later Read returns; nil until a Read fails
}

// Read reads one byte more than the limit to see whether the body is longer. If it is, the error is a
// *http.MaxBytesError, and net/http closes the connection.
func (b *requestBody) Read(p []byte) (n int, err error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	left := b.limit - b.read
	if int64(len(p)) > left+1 {
		p = p[:left+1]
	}
	n, b.err = b.ReadCloser.Read(p)
	if int64(n) > left {
		n, b.err = int(left), &http.MaxBytesError{Limit: b.limit}
		leaveUnread(b.w)
	}
	b.read += int64(n)
	return n, b.err
}

// prepareAnswer is called before a response that the middleware gives instead of the handler. net/http breaks the
// connection if at least 256 KiB of the body may be unread, or any byte on a connection that it will close. A client
// that is still sending would not see the response. In that case prepareAnswer calls leaveUnread.
func (b *requestBody) prepareAnswer(r *http.Request) {
	const drained = 256 << 10 // bytes that net/http reads by itself, to use the connection again
	if b.err != nil {
		return // the body was read to its end, or leaveUnread was called
	}
	unread := r.ContentLength - b.read
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
