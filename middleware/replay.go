package middleware

import (
	"net/http"
	"strconv"
	"strings"
)

// replay answers with what the key holds.
func (c *call) replay(value []byte) {
	rec, err := c.codec.decode(c.storageKey, value)
	switch {
	case err != nil:
		c.refuse(Unreadable, recordUnreadable, err)
	case c.fingerprint.contradicts(rec.fingerprint):
		c.refuse(Reused, keyReused, nil)
	case rec.tombstone:
		p := responseNotStored
		p.OriginalStatus = rec.status
		c.refuse(NotStored, p, nil)
	default:
		rec.writeTo(c.w, c.r)
		c.emit(Replayed, rec.status, nil)
	}
}

// writeTo writes the response as the handler did, into the header that today's outer middlewares have begun.
func (r record) writeTo(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	apply(h, r.header)
	h.Set("Idempotent-Replayed", "true")
	if len(r.trailer) == 0 && bodyAllowed(r.status) && (len(r.body) > 0 || req.Method != http.MethodHead) {
		h.Set("Content-Length", strconv.Itoa(len(r.body)))
	}
	for _, t := range r.trailer {
		if strings.HasPrefix(t.name, http.TrailerPrefix) {
			h[t.name] = t.values // tells net/http that there will be trailers
		}
	}
	w.WriteHeader(r.status)
	if len(r.body) > 0 {
		_, _ = w.Write(r.body) // the client may have left
	}
	apply(h, r.trailer)
}

// bodyAllowed tells whether a response with this status may have a body (RFC 9110 section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
