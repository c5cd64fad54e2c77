package main

import (
	"context"
	"io"
	"net/http"

	"github.com/valyala/fasthttp"
)

// site is a service with somebody's middleware around it.
type site struct {
	service *service
	visit   func() visitor
	close   func() error
}

// visitor is one caller's way to a site. It is no more than a server does for a request itself, and used again, so that
// little else is measured than the middleware.
type visitor interface {
	// post sends the request with that key. The body is valid until the next call.
	post(key string) (status int, body []byte, err error)
}

// opener opens a site.
type opener func(context.Context, conditions, *service) (*site, error)

// newSite opens a site of net/http.
func newSite(c conditions, s *service, h http.Handler, closeStore func() error) (*site, error) {
	if c.http {
		server := &http.Server{Handler: h}
		return listen(c, s, server.Serve, server.Close, closeStore)
	}
	visit := func() visitor { return newCall(h, c.body) }
	return &site{service: s, visit: visit, close: closeStore}, nil
}

// newFastSite opens a site of fasthttp.
func newFastSite(c conditions, s *service, h fasthttp.RequestHandler, closeStore func() error) (*site, error) {
	if c.http {
		server := &fasthttp.Server{Handler: h}
		return listen(c, s, server.Serve, server.Shutdown, closeStore)
	}
	visit := func() visitor { return newFastCall(h, c.body) }
	return &site{service: s, visit: visit, close: closeStore}, nil
}

// call calls a handler of net/http with the same request again and again.
type call struct {
	handler  http.Handler
	leave    context.CancelFunc // nobody does
	template *http.Request
	request  *http.Request
	body     bodyReader
	key      []string
	response response
}

func newCall(h http.Handler, body []byte) *call {
	// A server's requests can be cancelled, so contexts made from them cost what they do there.
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{handler: h, leave: cancel, body: bodyReader{content: body}, key: make([]string, 1)}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/payments", nil)
	if err != nil {
		panic(err)
	}
	r.RequestURI = "/payments"
	r.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": c.key}
	r.Body, r.ContentLength = &c.body, int64(len(body))
	c.template, c.request = r, new(http.Request)
	c.response.header = http.Header{}
	return c
}

func (c *call) post(key string) (int, []byte, error) {
	c.key[0] = key
	c.body.read = 0
	*c.request = *c.template
	clear(c.response.header)
	c.response.status, c.response.body = 0, c.response.body[:0]
	c.handler.ServeHTTP(&c.response, c.request)
	return c.response.status, c.response.body, nil
}

// bodyReader is a request's body that can be read anew.
type bodyReader struct {
	content []byte
	read    int
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n := copy(p, b.content[b.read:])
	b.read += n
	if b.read == len(b.content) {
		return n, io.EOF
	}
	return n, nil
}

func (b *bodyReader) Close() error { return nil }

// response is an [http.ResponseWriter] that can be used again.
type response struct {
	header http.Header
	status int
	body   []byte
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *response) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.body = append(r.body, p...)
	return len(p), nil
}

// fastCall calls a handler of fasthttp with the same request again and again.
type fastCall struct {
	handler fasthttp.RequestHandler
	body    []byte
	ctx     fasthttp.RequestCtx
}

func newFastCall(h fasthttp.RequestHandler, body []byte) *fastCall {
	c := &fastCall{handler: h, body: body}
	c.ctx.Init(new(fasthttp.Request), nil, nil)
	return c
}

func (c *fastCall) post(key string) (int, []byte, error) {
	c.ctx.ResetUserValues()
	c.ctx.Response.Reset()
	fillRequest(&c.ctx.Request, "/payments", key, c.body)
	c.handler(&c.ctx)
	return c.ctx.Response.StatusCode(), c.ctx.Response.Body(), nil
}

// fillRequest makes r the request that everybody gets.
func fillRequest(r *fasthttp.Request, uri, key string, body []byte) {
	r.Reset()
	r.Header.SetMethod(http.MethodPost)
	r.SetRequestURI(uri)
	r.Header.SetHost("127.0.0.1")
	r.Header.SetContentType("application/json")
	r.Header.Set("Idempotency-Key", key)
	r.SetBodyRaw(body)
}
