package middleware

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// requestBody limits the body, as http.MaxBytesReader does. It remembers whether it was read, and why that failed, for
// a key function may wrap the error or hide it.
type requestBody struct {
	io.ReadCloser
	w     http.ResponseWriter
	limit int64
	left  int64
	read  bool
	end   error // what every later Read returns
}

func (b *requestBody) Read(p []byte) (int, error) {
	if b.end != nil || len(p) == 0 {
		return 0, b.end
	}
	if int64(len(p))-1 > b.left {
		p = p[:b.left+1] // one more than may come tells whether it does
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), b.tooLarge()
	}
	b.left -= int64(n)
	b.read, b.end = b.read || n > 0, err
	return n, err
}

// tooLarge tells net/http, and returns what http.MaxBytesReader would.
func (b *requestBody) tooLarge() error {
	leaveUnread(b.w)
	return &http.MaxBytesError{Limit: b.limit}
}

// refused is called before r is answered without its handler. If net/http would close the connection with a part of the
// body unread, it is told: a client that is still sending would see the connection break, and never the response.
func (b *requestBody) refused(r *http.Request) {
	const drained = 256 << 10 // what net/http reads by itself, so that the connection can be used again
	if b.end != nil {
		return // it was read to its end, or net/http was told
	}
	rest := r.ContentLength - (b.limit - b.left)
	if r.ContentLength < 0 || rest >= drained || rest > 0 && r.Close {
		leaveUnread(b.w)
	}
}

// leaveUnread lets net/http close its side of the connection after the response, and the whole of it a moment later. Only
// its own reader can ask for that, and only its own writer understands: the reader is given a byte too many, and the
// writer is the innermost one.
func leaveUnread(w http.ResponseWriter) {
	_, _ = http.MaxBytesReader(innermost(w), io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
}

// innermost returns what w wraps, as http.ResponseController finds it.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// failed returns why reading it failed.
func (b *requestBody) failed() error {
	if b.end == io.EOF {
		return nil
	}
	return b.end
}

// handlerBody is what the handler reads. It hands out no part of the bytes themselves, and none any more once the
// handler has returned: they are used again then. (It has no WriteTo for the same reason.)
type handlerBody struct {
	mu     sync.Mutex
	rest   []byte
	closed bool
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

// Close leaves the rest to be read, until the handler has returned.
func (*handlerBody) Close() error { return nil }

// cutOff is called when the handler has returned.
func (b *handlerBody) cutOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest, b.closed = nil, true
}
