package onceclient

import "net/http"

// transport gives requests a key and repeats them.
type transport struct {
	base http.RoundTripper
	config
}

// New returns a Transport: an http.RoundTripper that gives requests a key and repeats them, as the package comment says, and
// sends each try through base. A nil base means http.DefaultTransport. The base must not follow redirects, change the body or
// repeat requests; an http.Transport is right. The Transport is safe for concurrent use if its base is. An invalid option
// panics.
//
// RoundTrip sends a request until its outcome is known, and does not change it. It returns at once if the context of the
// request is cancelled. It may read the whole body before the first try: then a cancellation closes the body, and RoundTrip
// returns when the Read in which it is returns. It always closes the body, possibly after it has returned.
//
// The error is a [*GaveUpError] unless nothing was sent. Then it is [ErrInvalidKey], the context's error, the error of
// reading the body, the base's error for an unsupported scheme, a URL without a host, an invalid header or an untrusted
// certificate, or an error that wraps why the last try got no connection: for example, each was refused. A base that does
// not call the hooks of net/http/httptrace may have sent each try.
//
// A request with a method that is not covered goes to the base as it is.
//
// The key that was sent is in the header of the response's Request. http.Client.CloseIdleConnections closes those of the base.
func New(base http.RoundTripper, opts ...Option) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	t := &transport{base: base, config: defaults()}
	for _, opt := range opts {
		opt(&t.config)
	}
	return t
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
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

// CloseIdleConnections is called by the method of http.Client.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
