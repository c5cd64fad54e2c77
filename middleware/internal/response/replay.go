// Package response represents a response as a value: the status, the handler's changes to the header, and the body. It
// also replays it.
package response

import (
	"net/http"
	"strconv"
	"strings"
)

// Response is a response as it is stored.
type Response struct {
	Status  int
	Header  []Change
	Trailer []Change
	Body    []byte
}

// WriteTo replays the response. It applies the handler's changes to the header that the outer middlewares have set, and
// sets the field mark, whose name is in canonical form.
func (r *Response) WriteTo(w http.ResponseWriter, req *http.Request, mark string) {
	h := w.Header()
	Apply(h, r.Header)
	h[mark] = []string{"true"}
	if r.Status >= 500 { // a retry would get the same response
		h["X-Should-Retry"] = []string{"false"}
	}
	announced := h["Trailer"]
	r.setLength(h, req, announced)
	for _, t := range r.Trailer {
		if strings.HasPrefix(t.Name, http.TrailerPrefix) {
			h[t.Name] = t.Values // see Announce
		}
	}
	w.WriteHeader(r.Status)
	if len(r.Body) > 0 {
		_, _ = w.Write(r.Body) // an error means that the client disconnected
	}
	for _, c := range r.Header {
		if IsTrailer(c.Name, announced) {
			delete(h, c.Name) // r.Trailer has its final value
		}
	}
	Apply(h, r.Trailer)
}

// setLength sets Content-Length, unless the handler has set or suppressed it. Before trailers, HTTP/1.1 cannot
// have it.
func (r *Response) setLength(h http.Header, req *http.Request, announced []string) {
	_, isSet := h["Content-Length"]
	hasTrailers := len(r.Trailer) > 0 || len(announced) > 0
	isKnown := len(r.Body) > 0 || req.Method != http.MethodHead
	switch {
	case !BodyAllowed(r.Status):
		delete(h, "Content-Length")
	case !isSet && !hasTrailers && isKnown:
		h["Content-Length"] = []string{strconv.Itoa(len(r.Body))}
	}
}

// BodyAllowed reports whether a response with this status may have a body (RFC 9110 section 6.4.1).
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
