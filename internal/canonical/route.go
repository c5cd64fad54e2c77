package canonical

import (
	"cmp"
	"net/http"
	"strings"
)

// AppendRoute appends the method and the path that the client sent, each as AppendPart does. An empty method is GET, an
// empty path is "/".
func AppendRoute(dst []byte, r *http.Request) []byte {
	dst = AppendPart(dst, cmp.Or(r.Method, http.MethodGet))
	return AppendPart(dst, sentPath(r))
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
