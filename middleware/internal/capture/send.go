package capture

// This file sends the response to the underlying writer. A goroutine of the handler is inside the gate, which it leaves
// for the call itself. The serving goroutine has closed the gate and drained it, and needs no lock.

import (
	"maps"
	"net/http"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

// send sends the header and the body so far. Afterwards w.Header() is the header that was sent, and handlerHeader is
// the handler's, unless the two are the same. cutOff is as in gate.call.
func (w *Writer) send() (cutOff bool) {
	w.state = headerSent
	w.putHeader()
	if cutOff := w.passStatus(w.status); cutOff {
		return true
	}
	return w.sendBody()
}

// putHeader gives the underlying writer the header that the handler had when it set the status.
func (w *Writer) putHeader() {
	h := w.Header()
	handlerRuns := !w.gate.closed
	isCopied := w.handlerHeader != nil // by SetAside: the handler may have changed h in any way since
	changed := isCopied || len(w.outerChanges) > 0 || len(response.Changed(h, w.headerAtStatus)) > 0
	// Writer.Response reads the handler's header later, perhaps while a call to the underlying writer is still in
	// progress. So a copy is kept if h is replaced below, and also if the handler still runs.
	if !isCopied && (changed || handlerRuns) {
		w.handlerHeader = maps.Clone(h) // with the handler's own lists of values, which it may still change
	}
	if changed {
		w.exposed = true
		clear(h)
		response.Apply(h, w.headerAtStatus)
		response.Apply(h, w.outerChanges)
		response.Announce(h, w.handlerHeader)
	}
}

// sendBody sends the body so far. cutOff is as in gate.call.
func (w *Writer) sendBody() (cutOff bool) {
	w.state = sent
	if len(w.body) == 0 {
		return false
	}
	_, cutOff, _ = w.pass(w.body) // after an error, the client has disconnected: what fits is stored for its retry
	return cutOff
}

// pass writes p to the underlying writer. cutOff is as in gate.call.
func (w *Writer) pass(p []byte) (n int, cutOff bool, err error) {
	cutOff = w.gate.call(func() { n, err = w.under.Write(p) })
	return n, cutOff, err
}

// passStatus is pass for a status.
func (w *Writer) passStatus(status int) (cutOff bool) {
	return w.gate.call(func() { w.under.WriteHeader(status) })
}

// fixContentType sets the Content-Type that net/http would detect from the body so far, which is about to be flushed. A
// replay passes on the whole body, from which net/http might detect another. Without a Flush the two are the same.
func (w *Writer) fixContentType() {
	const considered = 512 // bytes, by net/http
	switch body := w.body; {
	case len(body) == 0:
		w.setContentType(nil)
	case len(body) < considered && response.First(w.headerAtStatus, "Content-Encoding") == "":
		w.setContentType([]string{http.DetectContentType(body)})
	}
}

// setContentType sets the Content-Type in the header that is sent and stored, unless the handler or an outer middleware
// has. With nil, net/http detects none.
func (w *Writer) setContentType(values []string) {
	if response.Find(w.headerAtStatus, "Content-Type") < 0 {
		w.headerAtStatus = append(w.headerAtStatus, response.Change{Op: response.OpSet, Name: "Content-Type", Values: values})
	}
}
