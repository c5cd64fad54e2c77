package capture

import (
	"maps"
	"net/http"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

// This file has all that is given to the underlying writer. A goroutine of the handler holds the gate, which is unlocked
// for the call itself; the serving goroutine needs no lock once it has closed the gate and drained it.

// send sends the header and the body so far. It leaves the header as it was sent, and the handler's own in after.
func (w *Writer) send(next []byte) {
	wasClosed := w.gate.closed
	w.state = headerSent
	w.detectContentType(next)
	h := w.Header()
	changed := w.after != nil || !response.Unchanged(h, w.header) // after Fix, h may be anything
	// The underlying writer may change h, too, while Response reads what the handler left in it.
	if w.after == nil && (changed || !wasClosed) {
		w.after = maps.Clone(h) // with the handler's own lists of values, which it may still change
	}
	if changed {
		w.exposed = true
		clear(h)
		response.Apply(h, w.header)
		response.Announce(h, w.after)
	}
	w.passStatus(w.status)
	if w.gate.closed != wasClosed { // the serving goroutine has closed the gate during the call: w is its own now
		return
	}
	w.sendBody()
}

// sendBody sends the body so far.
func (w *Writer) sendBody() {
	wasClosed := w.gate.closed
	w.state = sent
	body := w.body.Bytes()
	if len(body) == 0 {
		return
	}
	w.body.SetLent(true)
	_, err := w.pass(body) // an error means that the client has left; the response is stored all the same
	// After an error the underlying writer may still read the bytes: a Write of net/http's HTTP/2 returns when the client
	// resets the stream, and the connection goes on.
	if w.gate.closed != wasClosed {
		return
	}
	w.body.SetLent(err != nil)
}

func (w *Writer) pass(p []byte) (int, error) {
	if !w.gate.closed {
		w.gate.beginCall()
		defer w.gate.endCall()
	}
	return w.w.Write(p)
}

func (w *Writer) passStatus(status int) {
	if !w.gate.closed {
		w.gate.beginCall()
		defer w.gate.endCall()
	}
	w.w.WriteHeader(status)
}

// detectContentType sets the Content-Type as net/http would, from the first bytes of the body, so that it is stored.
func (w *Writer) detectContentType(next []byte) {
	const considered = 512
	coded := response.First(w.header, "Content-Encoding") != "" || response.First(w.header, "Transfer-Encoding") != "" && !w.http2
	if coded || response.Find(w.header, "Content-Type") >= 0 {
		return
	}
	start := w.body.Bytes()
	start = start[:min(len(start), considered)]
	if more := min(considered-len(start), len(next)); more > 0 {
		start = append(start[:len(start):len(start)], next[:more]...)
	}
	if len(start) > 0 {
		w.header = append(w.header, response.Change{Op: response.OpSet, Name: "Content-Type", Values: []string{http.DetectContentType(start)}})
	}
}
