package keyfunc

import (
	"fmt"
	"net/http"
	"strings"
)

// Host returns the host that the client asked for, if the host selects the tenant:
//
//	Compose(Standard(user), Host())
//
// It is r.Host, the Host header or :authority, in lower case, because the case of a host has no meaning (RFC 9110 section
// 4.2.3). The port stays: two ports may be two services, and a retry goes to the same one. So example.com and
// example.com:443 are two hosts. Behind a proxy r.Host may be the proxy's name for the service: let the proxy pass the
// client's Host on. Host does not read X-Forwarded-Host, which a client can forge.
//
// A client chooses what it sends as Host. Host separates tenants only if the server refuses hosts that it does not serve
// or takes the tenant from the same r.Host.
//
// ErrInvalid: the request has no host, as HTTP/1.0 allows. The Func is safe for concurrent use.
func Host() Func {
	return func(r *http.Request) (string, error) {
		if r.Host == "" {
			return "", fmt.Errorf("%w: the request has no host", ErrInvalid)
		}
		return strings.ToLower(r.Host), nil
	}
}
