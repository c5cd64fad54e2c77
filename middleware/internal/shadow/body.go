package shadow

import (
	"errors"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/internal/reread"
)

// ErrStream is why a body is not read before the handler runs.
var ErrStream = errors.New("middleware: WithShadow: a body of unknown length on HTTP/2 is not read in advance")

// Body is the body of a request in shadow. It keeps what is read before the handler runs, so that the handler gets
// the whole body. All but rest is for the goroutine that serves the request.
type Body struct {
	source io.ReadCloser
	kept   []byte // all that was read of source
	err    error  // why source is not read any further; nil until a Read fails

	rest reread.Body // the whole body, for the handler; begun by HandOver if anything was read in advance
}

// Open begins to read the body of r. A body whose sender may wait for an answer before it sends the rest is not read.
func (p *Body) Open(r *http.Request) {
	p.source = r.Body
	if p.source == nil {
		p.source = http.NoBody
	}
	if r.ContentLength < 0 && r.ProtoMajor >= 2 {
		p.err = ErrStream
	}
}

func (p *Body) Read(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.source.Read(b)
	p.kept, p.err = append(p.kept, b[:n]...), err
	return n, err
}

// Close does nothing: the body belongs to the handler.
func (*Body) Close() error { return nil }

// HandOver returns the body for the handler. That is the original one if nothing was read of it, or if it is empty.
func (p *Body) HandOver() io.ReadCloser {
	if len(p.kept) == 0 && (p.err == nil || p.err == io.EOF || p.err == ErrStream) {
		return p.source
	}
	p.rest.Begin(p.kept, p.err, p.source)
	return &p.rest
}

// CutOff takes the body from goroutines that the handler has left behind, and returns the original one.
func (p *Body) CutOff() io.ReadCloser {
	p.rest.CutOff()
	return p.source
}
