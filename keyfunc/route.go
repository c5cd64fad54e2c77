package keyfunc

import (
	"net/http"

	"github.com/onceguard/onceguard/internal/canonical"
)

// Route is the method and the path of the request: the same key sent to two operations means two
// requests.
//
// The path is the one the client sent, from r.RequestURI, or from r.URL where that is empty (a request
// made by hand, in a test). A prefix that http.StripPrefix has taken off is therefore still there, and
// two sub-routers do not share a scope. Nothing in it is decoded or cleaned. The query is not part of
// it, an empty path is "/", an empty method is GET. Nor is the host: a server of several sites whose users may
// have the same ids composes a key with the host as a part.
//
// There is no error. The Func is safe for concurrent use.
func Route() Func {
	return func(r *http.Request) (string, error) {
		var buf [256]byte
		return string(canonical.AppendRoute(buf[:0], r)), nil
	}
}
