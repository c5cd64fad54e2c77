package middleware

import (
	"net/http"
	"strings"
)

// writeTo writes the response as the handler did, into the header that today's outer middlewares have begun.
func (r *record) writeTo(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	apply(h, r.header)
	h["Idempotent-Replayed"] = r.value("true")
	if r.status >= 500 { // a retry would get the same again
		h["X-Should-Retry"] = r.value("false")
	}
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil // it was not sniffed then, and is not now
	}
	announced := h["Trailer"]
	r.measure(h, req, announced)
	for _, t := range r.trailer {
		if strings.HasPrefix(t.name, http.TrailerPrefix) {
			h[t.name] = t.values // tells net/http that there will be trailers
		}
	}
	w.WriteHeader(r.status)
	if len(r.body) > 0 {
		_, _ = w.Write(r.body) // the client may have left
	}
	for _, c := range r.header {
		if isTrailer(c.name, announced) {
			delete(h, c.name) // its value before the body
		}
	}
	apply(h, r.trailer)
}

// measure sets the Content-Length, unless the handler has done so, or wanted none. HTTP/1.1 has no trailers behind one.
func (r *record) measure(h http.Header, req *http.Request, announced []string) {
	_, measured := h["Content-Length"]
	trailed := len(r.trailer) > 0 || len(announced) > 0
	switch {
	case !bodyAllowed(r.status):
		h.Del("Content-Length")
	case !measured && !trailed && (len(r.body) > 0 || req.Method != http.MethodHead):
		h["Content-Length"] = r.value(r.length)
	}
}
