// Package response is a response as a value: what a handler did to the header, and how to do that again.
package response

import (
	"net/http"
	"strings"
)

// Response is one as it is stored.
type Response struct {
	Status  int
	Header  []Change
	Trailer []Change
	Body    []byte

	// of one that was decoded, for its replay
	Length string   // of the body
	Spare  []string // with room for SpareValues more, as a rule
}

// SpareValues is how many values WriteTo adds to the header of a response below 500.
const SpareValues = 2

// value returns a list of one value, made of Spare.
func (r *Response) value(v string) []string {
	n := len(r.Spare)
	r.Spare = append(r.Spare, v)
	return r.Spare[n : n+1 : n+1]
}

// WriteTo writes the response as the handler did, into the header that today's outer middlewares have begun.
func (r *Response) WriteTo(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	Apply(h, r.Header)
	h["Idempotent-Replayed"] = r.value("true")
	if r.Status >= 500 { // a retry would get the same again
		h["X-Should-Retry"] = r.value("false")
	}
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil // it was not sniffed then, and is not now
	}
	announced := h["Trailer"]
	r.measure(h, req, announced)
	for _, t := range r.Trailer {
		if strings.HasPrefix(t.Name, http.TrailerPrefix) {
			h[t.Name] = t.Values // tells net/http that there will be trailers
		}
	}
	w.WriteHeader(r.Status)
	if len(r.Body) > 0 {
		_, _ = w.Write(r.Body) // the client may have left
	}
	for _, c := range r.Header {
		if IsTrailer(c.Name, announced) {
			delete(h, c.Name) // its value before the body
		}
	}
	Apply(h, r.Trailer)
}

// measure sets the Content-Length, unless the handler has done so, or wanted none. HTTP/1.1 has no trailers behind one.
func (r *Response) measure(h http.Header, req *http.Request, announced []string) {
	_, measured := h["Content-Length"]
	trailed := len(r.Trailer) > 0 || len(announced) > 0
	switch {
	case !BodyAllowed(r.Status):
		h.Del("Content-Length")
	case !measured && !trailed && (len(r.Body) > 0 || req.Method != http.MethodHead):
		h["Content-Length"] = r.value(r.Length)
	}
}

// BodyAllowed reports whether a response with this status may have a body (RFC 9110 section 6.4.1).
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
