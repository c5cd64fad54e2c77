package ask

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Limits of one response. Fifty may be read at once, and a thousand are compared in the end, so that of a long body only the
// beginning is kept, with the length and the sum of the whole.
const (
	// The head, with all interim responses before it.
	maxHead = 1 << 20
	maxBody = 64 << 20  // what is read of the body
	maxKept = 128 << 10 // what is kept of it
)

// reader reads a response, and no more of it than the limits allow.
type reader struct {
	limit    io.LimitedReader
	buffered *bufio.Reader
}

func newReader(from io.Reader) *reader {
	r := &reader{limit: io.LimitedReader{R: from, N: maxHead}}
	r.buffered = bufio.NewReader(&r.limit)
	return r
}

// head reads the head of a response, final or interim.
func (r *reader) head(method string) (*http.Response, error) {
	resp, err := http.ReadResponse(r.buffered, &http.Request{Method: method})
	if err != nil && r.limit.N <= 0 {
		return nil, errors.New("the response has a head of more than 1 MiB")
	} else if err != nil {
		return nil, fmt.Errorf("the connection ended before a response: %w", err)
	}
	return resp, nil
}

// response reads the final response, or the rest of one whose head has been read.
func (r *reader) response(to Request, resp *http.Response) (_ *Response, err error) {
	for resp == nil || resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		if resp, err = r.head(to.Method); err != nil {
			return nil, err
		}
	}
	r.limit.N = 2 * maxBody // with what surrounds the chunks
	return readBody(resp, to.Whole)
}

// readBody reads the body. Of a long one it keeps the beginning, unless the whole is wanted.
func readBody(resp *http.Response, whole bool) (*Response, error) {
	defer resp.Body.Close()
	kept, sum := beginning{limit: maxKept}, sha256.New()
	if whole {
		kept.limit = maxBody
	}
	size, err := io.Copy(io.MultiWriter(&kept, sum), io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the response broke off in its body: %w", err)
	case size > maxBody:
		return nil, errors.New("the response has more than 64 MiB")
	}
	return &Response{
		Status: resp.StatusCode, Header: resp.Header, Trailer: resp.Trailer,
		Body: kept.Bytes(), Size: size, Sum: [sha256.Size]byte(sum.Sum(nil)),
	}, nil
}

// beginning keeps the first bytes that are written to it.
type beginning struct {
	bytes.Buffer
	limit int
}

// Write takes p, and keeps of it what the limit allows.
func (b *beginning) Write(p []byte) (int, error) {
	// Never fails.
	_, _ = b.Buffer.Write(p[:min(len(p), b.limit-b.Len())])
	return len(p), nil
}
