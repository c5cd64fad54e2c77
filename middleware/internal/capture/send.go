package capture

import (
	"maps"
	"net/http"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

// This file has all that is given to the underlying writer. A goroutine of the handler holds the gate, which is unlocked
// for the call itself; the serving goroutine needs no lock once it has closed the gate and drained it.

// send sends the header and the body so far. Afterwards w.Header() is the header that was sent, and handlerHeader the
// handler's own, unless the two are the same.
func (w *Writer) send(next []byte) {
	w.state = headerSent
	w.detectContentType(next)
	w.putHeader()
	if cutOff := w.passStatus(w.status); cutOff {
		return
	}
	w.sendBody()
}

// putHeader makes the header that the handler had when it set the status the underlying writer's.
func (w *Writer) putHeader() {
	handlerRuns := !w.gate.closed
	h := w.Header()
	changed := w.handlerHeader != nil || !response.Unchanged(h, w.header) // after Fix, the handler may have done anything to h
	// The underlying writer may change h, too, while Response reads what the handler left in it.
	if w.handlerHeader == nil && (changed || handlerRuns) {
		w.handlerHeader = maps.Clone(h) // with the handler's own lists of values, which it may still change
	}
	if changed {
		w.exposed = true
		clear(h)
		response.Apply(h, w.header)
		response.Announce(h, w.handlerHeader)
	}
}

// sendBody sends the body so far.
func (w *Writer) sendBody() {
	w.state = sent
	body := w.body.Bytes()
	if len(body) == 0 {
		return
	}
	w.body.SetLent(true)
	_, cutOff, err := w.pass(body) // an error means that the client has disconnected; the response is stored all the same
	if cutOff {
		return
	}
	// After an error the underlying writer may still read the bytes: a Write of net/http's HTTP/2 returns when the client
	// resets the stream, and the connection goes on.
	w.body.SetLent(err != nil)
}

// pass writes p to the underlying writer. cutOff reports whether the serving goroutine has closed the gate during the
// call: w is its own then, and the caller must not touch it.
func (w *Writer) pass(p []byte) (n int, cutOff bool, err error) {
	if w.gate.closed {
		n, err = w.w.Write(p)
		return n, false, err
	}
	w.gate.beginCall()
	defer func() {
		w.gate.endCall()
		cutOff = w.gate.closed
	}()
	n, err = w.w.Write(p)
	return n, false, err
}

// passStatus is pass for a status.
func (w *Writer) passStatus(status int) (cutOff bool) {
	if w.gate.closed {
		w.w.WriteHeader(status)
		return false
	}
	w.gate.beginCall()
	defer func() {
		w.gate.endCall()
		cutOff = w.gate.closed
	}()
	w.w.WriteHeader(status)
	return false
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
