package middleware

import (
	"errors"
	"io"
	"net/http"
)

// errShadowStream is why a body is not read before the handler runs.
var errShadowStream = errors.New("middleware: WithShadow: a body of unknown length on HTTP/2 is not read in advance")

// prefetch is the body of a request in shadow. It keeps what is read before the handler runs, so that the handler gets
// the whole body. Only the goroutine that serves the request uses it.
type prefetch struct {
	source io.ReadCloser
	kept   []byte // all that was read of source
	err    error  // of reading source; nil until a Read fails
	closed error  // what Read returns instead of reading; nil if the body may be read
}

// open begins to read the body of r. A body whose sender may wait for an answer before it sends the rest is not read.
func (p *prefetch) open(r *http.Request) {
	p.source = r.Body
	if p.source == nil {
		p.source = http.NoBody
	}
	if r.ContentLength < 0 && r.ProtoMajor >= 2 {
		p.closed = errShadowStream
	}
}

func (p *prefetch) Read(b []byte) (int, error) {
	switch {
	case p.closed != nil:
		return 0, p.closed
	case p.err != nil:
		return 0, p.err
	}
	n, err := p.source.Read(b)
	p.kept, p.err = append(p.kept, b[:n]...), err
	return n, err
}

// Close does nothing: the body belongs to the handler.
func (*prefetch) Close() error { return nil }

// handOver returns the body for the handler.
func (p *prefetch) handOver() io.ReadCloser {
	if len(p.kept) == 0 && p.err == nil {
		return p.source
	}
	return &resumedBody{ReadCloser: p.source, kept: p.kept, err: p.err}
}

// resumedBody is a body whose beginning was read in advance. Close closes the original body.
type resumedBody struct {
	io.ReadCloser
	kept []byte
	err  error // what follows kept, if reading the original body has ended; else nil
}

func (b *resumedBody) Read(p []byte) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case len(b.kept) > 0:
		n := copy(p, b.kept)
		b.kept = b.kept[n:]
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}
