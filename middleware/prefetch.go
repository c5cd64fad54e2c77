package middleware

import (
	"errors"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/internal/reread"
)

// errShadowStream is why a body is not read before the handler runs.
var errShadowStream = errors.New("middleware: WithShadow: a body of unknown length on HTTP/2 is not read in advance")

// prefetch is the body of a request in shadow. It keeps what is read before the handler runs, so that the handler gets
// the whole body. All but rest is for the goroutine that serves the request.
type prefetch struct {
	source io.ReadCloser
	kept   []byte // all that was read of source
	err    error  // why source is not read any further; nil until a Read fails

	rest reread.Body // the whole body, for the handler; begun by handOver if anything was read in advance
}

// open begins to read the body of r. A body whose sender may wait for an answer before it sends the rest is not read.
func (p *prefetch) open(r *http.Request) {
	p.source = r.Body
	if p.source == nil {
		p.source = http.NoBody
	}
	if r.ContentLength < 0 && r.ProtoMajor >= 2 {
		p.err = errShadowStream
	}
}

func (p *prefetch) Read(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.source.Read(b)
	p.kept, p.err = append(p.kept, b[:n]...), err
	return n, err
}

// Close does nothing: the body belongs to the handler.
func (*prefetch) Close() error { return nil }

// handOver returns the body for the handler. That is the original one if nothing was read of it, or if it is empty.
func (p *prefetch) handOver() io.ReadCloser {
	if len(p.kept) == 0 && (p.err == nil || p.err == io.EOF || p.err == errShadowStream) {
		return p.source
	}
	p.rest.Begin(p.kept, p.err, p.source)
	return &p.rest
}
