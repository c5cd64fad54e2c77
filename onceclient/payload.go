package onceclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
)

// errLength is the error of a body whose length is not the request's ContentLength.
var errLength = errors.New("onceclient: the body does not have the length of the request's ContentLength")

// payload is the body of one request, for each of its tries.
type payload struct {
	first io.ReadCloser                 // of the first try; nil without a body
	again func() (io.ReadCloser, error) // of the later tries; nil if the body can be sent only once
}

// payload returns the body of req, and reads it if it cannot be sent again otherwise. If payload returns an error, it
// has closed the body, or closes it soon.
func (t *Transport) payload(req *http.Request) (payload, error) {
	switch {
	case req.Context().Err() != nil:
		closeBody(req)
		return payload{}, ended(req.Context())
	case (req.Body == nil || req.Body == http.NoBody) && req.ContentLength > 0:
		return payload{}, errLength
	case req.Body == nil || req.Body == http.NoBody:
		return payload{req.Body, func() (io.ReadCloser, error) { return req.Body, nil }}, nil
	case req.GetBody != nil:
		return payload{req.Body, req.GetBody}, nil
	case req.ContentLength > t.maxBody || t.maxBody == 0:
		return payload{first: req.Body}, nil
	}
	return t.keep(req)
}

// keep reads the body of req into memory. If the context is done first, keep returns at once. The goroutine that reads
// then ends after the Read in which it is, as http.Transport's does, and closes the body.
func (t *Transport) keep(req *http.Request) (payload, error) {
	type result struct {
		payload
		err error
	}
	read := make(chan result, 1)
	go func() {
		p, err := readBody(req, t.maxBody)
		if err != nil {
			closeBody(req)
		}
		read <- result{p, err}
	}()
	select {
	case r := <-read:
		return r.payload, r.err
	case <-req.Context().Done():
		go func() { // the body is not sent any more
			if r := <-read; r.err == nil {
				r.first.Close()
			}
		}()
		return payload{}, ended(req.Context())
	}
}

// readBody reads up to limit bytes. If that is the whole body, it closes the body. If there is more, the payload is
// what it has read followed by the rest, and can be sent once.
func readBody(req *http.Request, limit int64) (payload, error) {
	kept, err := io.ReadAll(io.LimitReader(untilDone{req.Context(), req.Body}, limit+1))
	if err != nil {
		return payload{}, err
	}
	if int64(len(kept)) > limit {
		return payload{first: struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(kept), req.Body), req.Body}}, nil
	}
	if req.ContentLength > 0 && req.ContentLength != int64(len(kept)) {
		return payload{}, errLength
	}
	again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }
	first, _ := again()
	return payload{first, again}, req.Body.Close()
}

// untilDone is an io.Reader that reads from Reader until ctx is done.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, ended(u.ctx)
	}
	return u.Reader.Read(p)
}
