// Package reread has the body of a request that was read in advance, for the handler that reads it afterwards.
package reread

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// ErrUsed is why a request is refused whose body was read before: without the body, two requests would look alike.
var ErrUsed = errors.New("onceguard: the body was used up before its fingerprint was taken: by an outer middleware, " +
	"or by a key function that did not put it back as keyfunc.Form does")

// ErrMaybeUsed is the Event's error for a request whose body is empty and had no length. Another middleware may have read
// it, and then requests with different bodies look alike. The request runs, because the body may have been sent empty.
var ErrMaybeUsed = errors.New("onceguard: the body is empty although its length was not known in advance: an outer middleware " +
	"may have read it, and requests with different bodies then count as the same")

// Body returns what was read of a body in advance, and then what follows. Its methods but Begin may be called
// concurrently, because the goroutines of a handler may share a body; each byte is returned once. There is no WriteTo:
// Read copies the bytes, so that nothing refers to them after CutOff.
type Body struct {
	reading sync.Mutex    // held during a Read of source
	source  io.ReadCloser // set by Begin

	mu    sync.Mutex // guards the fields below; not held during a Read of source, which may take long
	kept  []byte     // what was read in advance and has not been returned yet
	end   error      // what follows kept; nil if the rest of source follows
	isCut bool       // CutOff was called
}

// Begin makes b return kept, and then end: io.EOF, or why source could not be read further. If end is nil, what is left
// of source follows. Begin is called once, before any other method but CutOff.
func (b *Body) Begin(kept []byte, end error, source io.ReadCloser) {
	b.kept, b.end, b.source = kept, end, source
}

// Read returns http.ErrBodyReadAfterClose after Close and CutOff.
func (b *Body) Read(p []byte) (int, error) {
	n, isSourceNext, err := b.readKept(p)
	if !isSourceNext {
		return n, err
	}
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.wasCut() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err = b.source.Read(p)
	if b.wasCut() {
		return 0, http.ErrBodyReadAfterClose
	}
	return n, err
}

// readKept is Read without source. isSourceNext reports whether source has the next byte.
func (b *Body) readKept(p []byte) (n int, isSourceNext bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.isCut:
		return 0, false, http.ErrBodyReadAfterClose
	case len(b.kept) == 0:
		return 0, b.end == nil, b.end
	}
	n = copy(p, b.kept)
	b.kept = b.kept[n:]
	return n, false, nil
}

func (b *Body) wasCut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isCut
}

// Close closes source. Later Reads fail as with net/http's own body.
func (b *Body) Close() error {
	b.CutOff()
	return b.source.Close()
}

// CutOff makes every later Read fail, and also a Read that waits for source. It does not wait for that Read. Afterwards
// nothing refers to kept.
func (b *Body) CutOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept, b.isCut = nil, true
}
