package onceclient

import "net/http"

// Transport is an http.RoundTripper that gives requests a key and repeats them, as the package comment says. It is safe
// for concurrent use if its base is.
type Transport struct {
	base http.RoundTripper
	config
}

// New returns a Transport that sends each try through base. A nil base means http.DefaultTransport. The base must not
// follow redirects, change the body or repeat requests; an http.Transport is right. An invalid option panics.
func New(base http.RoundTripper, opts ...Option) *Transport {
	if base == nil {
		base = http.DefaultTransport
	}
	t := &Transport{base: base, config: defaults()}
	for _, opt := range opts {
		opt(&t.config)
	}
	return t
}

// RoundTrip sends req until its outcome is known, and does not change req. It returns at once if the context of req is
// cancelled. It may read the whole body before the first try. It always closes the body, possibly after it has
// returned.
//
// The error is a [*GaveUpError] unless nothing was sent. Then it is [ErrInvalidKey], the context's error, the error of
// reading the body, the base's error for an unsupported scheme, a URL without a host, an invalid header or an untrusted
// certificate, or an error that wraps why the last try got no connection: for example, each was refused. A base that does
// not call the hooks of net/http/httptrace may have sent each try.
//
// A request with a method that is not covered goes to the base as it is.
//
// The key that was sent is in the header of the response's Request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.methods[req.Method] {
		return t.base.RoundTrip(req)
	}
	key, err := t.key(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	p, err := t.payload(req)
	if err != nil {
		return nil, err
	}
	return newCall(t, req, key, p).do()
}

// CloseIdleConnections closes those of the base, if it can. http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
