// Package response is a response as a value: status, body, what the handler changed in the header, and how to replay it.
package response

import (
	"net/http"
	"strings"
)

// Response is a response as it is stored.
type Response struct {
	Status  int
	Header  []Change
	Trailer []Change
	Body    []byte

	// For WriteTo, set when a record is decoded.
	Length string   // of Body, in decimal
	Spare  []string // usually with the capacity for SpareValues more
}

// SpareValues is how many values WriteTo adds to the header of a response below 500.
const SpareValues = 2

// value returns a list of the one value v, in the memory of Spare.
func (r *Response) value(v string) []string {
	n := len(r.Spare)
	r.Spare = append(r.Spare, v)
	return r.Spare[n : n+1 : n+1]
}

// WriteTo replays the response: it makes the handler's changes to the header that outer middlewares have set.
func (r *Response) WriteTo(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	Apply(h, r.Header)
	h["Idempotent-Replayed"] = r.value("true")
	if r.Status >= 500 { // a retry would get the same response
		h["X-Should-Retry"] = r.value("false")
	}
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil // it was sent without one: net/http must not sniff
	}
	announced := h["Trailer"]
	r.measure(h, req, announced)
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
			delete(h, c.Name) // Trailer has its value at the end
		}
	}
	Apply(h, r.Trailer)
}

// measure sets Content-Length, unless the handler has set or suppressed it. HTTP/1.1 has no trailers behind one.
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
