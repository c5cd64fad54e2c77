package main

import (
	"errors"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// listen opens a site on a loopback port. Its server runs in this process, beside the callers and on the same core.
// All are called by fasthttp's client, which costs less than net/http's: what it takes lies on every ratio.
func listen(c conditions, s *service, serve func(net.Listener) error, closers ...func() error) (*site, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { _ = serve(l) }() // until it is closed
	client := &fasthttp.HostClient{
		Addr: l.Addr().String(),
		// In begin of in-flight, each caller has a request open beside its own.
		MaxConns:            2 * c.callers,
		MaxIdleConnDuration: time.Hour, // others are measured meanwhile
	}
	visit := func() visitor { return &visit{client: client, body: c.body} }
	return &site{service: s, visit: visit, close: func() error {
		client.CloseIdleConnections()
		var errs []error
		for _, f := range closers {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}}, nil
}

// visit is a caller over HTTP.
type visit struct {
	client   *fasthttp.HostClient
	body     []byte
	request  fasthttp.Request
	response fasthttp.Response
}

func (v *visit) post(key string) (int, []byte, error) {
	fillRequest(&v.request, "http://127.0.0.1/payments", key, v.body)
	v.response.Reset()
	err := v.client.Do(&v.request, &v.response)
	return v.response.StatusCode(), v.response.Body(), err
}
