package canonical

import (
	"cmp"
	"net/http"
	"strings"
)

// AppendRoute appends two parts: the method, and the path that the client sent. An empty method is GET, an empty path
// is "/".
func AppendRoute(dst []byte, r *http.Request) []byte {
	dst = AppendPart(dst, cmp.Or(r.Method, http.MethodGet))
	return AppendPart(dst, sentPath(r))
}

// sentPath returns the path of the request target, RFC 9112, section 3.2, without decoding it. The absolute form gives
// the same path as the origin form. The asterisk form and the authority of a CONNECT are returned unchanged.
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
