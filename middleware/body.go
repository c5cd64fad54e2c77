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

// tooLarge tells net/http, which closes the connection after the response then. It listens only to its own reader, so
// that one is given a byte too many.
func (b *requestBody) tooLarge() error {
	_, _ = http.MaxBytesReader(b.w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
	return &http.MaxBytesError{Limit: b.limit}
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
