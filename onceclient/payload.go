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
func (t *transport) payload(req *http.Request) (payload, error) {
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

// keep reads up to maxBody bytes of the body of req. If that is the whole body, keep closes it. If there is more, the payload
// is what it has read followed by the rest, and can be sent once. If the context is done first, keep closes the body, which
// ends a Read that waits for a pipe or a connection.
func (t *transport) keep(req *http.Request) (payload, error) {
	ctx := req.Context()
	goesOn := context.AfterFunc(ctx, func() { req.Body.Close() })
	kept, err := io.ReadAll(io.LimitReader(req.Body, t.maxBody+1))
	switch isLong := int64(len(kept)) > t.maxBody; {
	case !goesOn():
		return payload{}, ended(ctx)
	case err == nil && isLong:
		return payload{first: struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(kept), req.Body), req.Body}}, nil
	case err == nil && req.ContentLength > 0 && req.ContentLength != int64(len(kept)):
		err = errLength
	}
	closed := req.Body.Close()
	if err == nil {
		err = closed
	}
	again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }
	first, _ := again()
	return payload{first, again}, err
}
