// Calls of handlers without a server, which reuse the request and the response.

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/valyala/fasthttp"
)

const idempotencyKey = "Idempotency-Key"

// call calls a handler of net/http. It is also the [http.ResponseWriter].
type call struct {
	handler           http.Handler
	cancel            context.CancelFunc // never called
	template, request *http.Request
	content           []byte
	body              *bytes.Reader
	key               []string // the header's values

	header  http.Header
	status  int
	written []byte
}

func newCall(h http.Handler, body []byte) *call {
	// A server's requests can be cancelled, and contexts made from such ones cost more.
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{
		handler: h, cancel: cancel, content: body, body: bytes.NewReader(body), key: make([]string, 1), header: http.Header{},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/payments", nil)
	if err != nil {
		panic(err)
	}
	r.RequestURI = "/payments"
	r.Header = http.Header{"Content-Type": {"application/json"}, idempotencyKey: c.key}
	r.Body, r.ContentLength = io.NopCloser(c.body), int64(len(body))
	c.template, c.request = r, new(http.Request)
	return c
}

// visit is a [visitor].
func (c *call) visit(key string) (int, []byte, error) {
	c.key[0] = key
	c.body.Reset(c.content)
	*c.request = *c.template
	clear(c.header)
	c.status, c.written = 0, c.written[:0]
	c.handler.ServeHTTP(c, c.request)
	return c.status, c.written, nil
}

func (c *call) Header() http.Header { return c.header }

func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

func (c *call) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	c.written = append(c.written, p...)
	return len(p), nil
}

func fillRequest(r *fasthttp.Request, uri, key string, body []byte) {
	r.Reset()
	r.Header.SetMethod(http.MethodPost)
	r.SetRequestURI(uri)
	r.Header.SetHost("127.0.0.1")
	r.Header.SetContentType("application/json")
	r.Header.Set(idempotencyKey, key)
	r.SetBodyRaw(body)
}
