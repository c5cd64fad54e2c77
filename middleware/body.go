package middleware

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// requestBody limits the body as http.MaxBytesReader does. It remembers whether it was read and why that failed, since a
// key function may wrap or hide the error.
type requestBody struct {
	io.ReadCloser
	w     http.ResponseWriter
	limit int64
	left  int64 // only shrinks
	read  bool  // a byte was
	end   error // what every later Read returns; nil until a Read fails
}

func (b *requestBody) Read(p []byte) (int, error) {
	if b.end != nil || len(p) == 0 {
		return 0, b.end
	}
	if int64(len(p))-1 > b.left {
		p = p[:b.left+1] // one byte more shows whether the body is too long
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), b.tooLarge()
	}
	b.left -= int64(n)
	b.read, b.end = b.read || n > 0, err
	return n, err
}

// tooLarge makes net/http close the connection, and returns the error of http.MaxBytesReader.
func (b *requestBody) tooLarge() error {
	leaveUnread(b.w)
	return &http.MaxBytesError{Limit: b.limit}
}

// refused is called before a response without the handler. If net/http would break the connection because of an unread
// body, it calls leaveUnread, so that a client that is still sending sees the response.
func (b *requestBody) refused(r *http.Request) {
	const drained = 256 << 10 // bytes that net/http reads by itself, to use the connection again
	if b.end != nil {
		return // it was read to its end, or leaveUnread was called
	}
	rest := r.ContentLength - (b.limit - b.left)
	if r.ContentLength < 0 || rest >= drained || rest > 0 && r.Close {
		leaveUnread(b.w)
	}
}

// leaveUnread makes net/http close its side of the connection after the response, and the other side a moment later. Only
// an http.MaxBytesReader that overflows can ask for that, and only net/http's own writer, the innermost one, obeys.
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
	if b.end == io.EOF {
		return nil
	}
	return b.end
}

// handlerBody is the body that the handler reads. It copies the bytes, and none after cutOff, since their memory is used
// again. (It has no WriteTo for the same reason.)
type handlerBody struct {
	mu     sync.Mutex // guards the fields below
	rest   []byte     // not read yet
	closed bool       // cutOff was called
}

func (b *handlerBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close does nothing: the handler may read on.
func (*handlerBody) Close() error { return nil }

// cutOff makes every later Read fail.
func (b *handlerBody) cutOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest, b.closed = nil, true
}
