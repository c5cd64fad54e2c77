package keyfunc

import (
	"cmp"
	"net/http"
	"strings"
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
		return string(appendRoute(buf[:0], r)), nil
	}
}

func appendRoute(dst []byte, r *http.Request) []byte {
	dst = appendPart(dst, cmp.Or(r.Method, http.MethodGet))
	return appendPart(dst, sentPath(r))
}

// sentPath cuts the path out of the request target, RFC 9112, section 3.2. The absolute form loses its scheme
// and authority without being decoded, so that it gives the same path as the origin form. The
// asterisk form, and the authority of a CONNECT, stay as they are.
func sentPath(r *http.Request) string {
	if r.RequestURI == "" {
		return cmp.Or(r.URL.EscapedPath(), "/")
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if strings.HasPrefix(path, "/") {
		return path
	}
	if _, rest, absolute := strings.Cut(path, "://"); absolute {
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			return "/"
		}
		return rest[slash:]
	}
	return cmp.Or(path, "/")
}
