package keyfunc

import (
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
)

// Route returns the method and the path of the request, so that the same key sent to two operations means two requests.
//
// The path is the one that the client sent: that of r.RequestURI, or of r.URL if RequestURI is empty, as in a test. It
// keeps a prefix that http.StripPrefix has removed, so two sub-routers do not share keys. It is neither decoded nor
// cleaned, and it has no query. An empty path is "/", an empty method is GET.
//
// The host is not part of it: see [Host].
//
// Route returns no error. The Func is safe for concurrent use.
func Route() Func {
	return func(r *http.Request) (string, error) {
		var buf [256]byte
		return string(canonical.AppendRoute(buf[:0], r)), nil
	}
}
