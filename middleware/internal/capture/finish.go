package capture

// This file contains what the serving goroutine calls after the handler has returned.

import (
	"context"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Verdict is how much of the response can be stored when the handler has returned.
type Verdict uint8

const (
	Whole    Verdict = iota + 1 // all of it, in memory: it can be replayed
	Partial                     // not all of it is in memory (too long), or not all of it is HTTP (hijacked, a 101)
	Broken                      // its body is shorter or longer than its Content-Length
	TimedOut                    // none: the handler returned without one after its context was done, and a 504 is sent
	Bypassed                    // unknown: the handler answered on a ResponseWriter other than the one it was given
	LeftOpen                    // none: an outer middleware answers, see WhyLeftOpen
)

// Finish makes the response final, cuts off the handler's goroutines, and returns how much of the response can be stored. A
// handler that has written nothing has answered 200, or 504 if its context has expired.
func (w *Writer) Finish(expired bool) Verdict {
	w.gate.close()
	w.verdict = w.judge(expired)
	return w.verdict
}

// judge decides the verdict, and sets the status if the handler has set none.
func (w *Writer) judge(expired bool) Verdict {
	switch {
	case w.isBypassed():
		w.noteBypass()
		return Bypassed
	case w.hijacked:
		return Partial
	case w.status == 0 && WhyLeftOpen(w.under) != nil:
		return LeftOpen
	case w.status == 0 && expired:
		w.status = http.StatusGatewayTimeout
		return TimedOut
	case w.status == 0:
		w.setStatus(http.StatusOK)
	}
	switch {
	case w.isBroken():
		return Broken
	case w.overflow, w.status == http.StatusSwitchingProtocols: // what follows a 101 is no HTTP response
		return Partial
	}
	return Whole
}

// isBroken reports whether the handler wrote fewer or more bytes than its Content-Length.
func (w *Writer) isBroken() bool {
	if w.isHEAD || !response.BodyAllowed(w.status) || w.length < 0 {
		return false
	}
	return w.written > w.length || w.written < w.length && !w.chunked
}

// isBypassed reports, once the gate is closed, whether the handler answered on a writer that the underlying one wraps.
// A framework may give the handler its own writer besides the one that the middleware gave it.
func (w *Writer) isBypassed() bool {
	if w.state != unsent || w.sent1xx || w.gate.leftInCall || w.writtenBefore { // then IsAnswered may be due to that
		return false
	}
	return IsAnswered(w.under)
}

// noteBypass records that the client may have a response that this Writer does not know.
func (w *Writer) noteBypass() {
	w.status = 0
	w.observer.Sending()
}

// HeaderAtStatus returns a copy of the header as it was when the handler set the status, the fields of outer middlewares
// included.
func (w *Writer) HeaderAtStatus() http.Header {
	h := http.Header{}
	response.Apply(h, w.headerAtStatus)
	return h.Clone()
}

// Response returns what is stored of a Whole response, and whether its cookies were left out. The response shares
// memory with w.
func (w *Writer) Response(cookies bool) (r *response.Response, cookiesDropped bool) {
	changed := response.Changed(w.outerHeader, w.headerAtStatus)
	header, cookiesDropped := response.Storable(changed, response.ValuesOf(w.headerAtStatus, "Connection"), cookies)
	end := w.handlerHeader
	if end == nil {
		end = w.Header()
	}
	trailers := response.Trailers(response.ValuesOf(w.headerAtStatus, "Trailer"), w.outerHeader, end)
	trailer, dropped := response.WithoutCookies(trailers, cookies)
	return &response.Response{Status: w.status, Header: header, Trailer: trailer, Body: w.body}, cookiesDropped || dropped
}

// Deliver sends what has not been sent, once the key is settled. outer is the context of the request. Afterwards only
// Status may be called.
func (w *Writer) Deliver(outer context.Context) {
	w.gate.drain()
	switch w.verdict {
	case Bypassed: // the client has a response that w does not know
	case LeftOpen: // it will get one
		response.Apply(w.Header(), w.outerChanges)
	case TimedOut:
		w.deliverTimeout(outer)
	default:
		w.deliver()
	}
}

func (w *Writer) deliver() {
	w.end1xx() // of a goroutine left behind
	switch w.state {
	case unsent:
		w.send()
	case headerSent: // the Flush or Write of a goroutine left behind was cut off
		w.sendBody()
	}
	if w.handlerHeader != nil {
		response.ReplaceTrailers(w.Header(), w.handlerHeader, response.ValuesOf(w.headerAtStatus, "Trailer"))
	}
}

// deliverTimeout sends the status alone, without the header that the handler has prepared. After the outer deadline it
// lets the middleware that has set it answer first: what http.TimeoutHandler writes replaces this response.
func (w *Writer) deliverTimeout(outer context.Context) {
	if deadline, ok := outer.Deadline(); ok && !time.Now().Before(deadline) {
		if done := outer.Done(); done != nil { // nil if the context has a deadline and never ends
			<-done
		}
	}
	w.restoreHeader()
	w.under.WriteHeader(w.status)
}

// Withdraw is called instead of Deliver. It discards a response of which nothing was sent, and restores the header as
// it was at Begin. Afterwards only Status may be called.
func (w *Writer) Withdraw() {
	w.gate.drain()
	w.restoreHeader()
}

// restoreHeader makes the header as it was at Begin. What the underlying writer has changed in a 1xx stays: a compressor
// that has set its Content-Encoding compresses any response. After a 1xx that was cut off nothing stays: the handler may
// have changed the header meanwhile.
func (w *Writer) restoreHeader() {
	response.Replace(w.Header(), w.outerHeader)
	response.Apply(w.Header(), w.outerChanges)
}

// Abort discards the response of a handler that did not return. If the handler has set a status and nothing was sent,
// it restores the header as it was at Begin, so that an outer middleware can answer. Without a status the header stays
// as the handler left it, as with net/http. It also stays if a goroutine is still in a call to the underlying writer,
// which may be reading it. Abort may follow Finish. Status and SentStatus are valid after it.
func (w *Writer) Abort() {
	w.gate.close()
	switch {
	case w.isBypassed():
		w.noteBypass()
	case w.state == unsent && !w.gate.leftInCall && w.status != 0:
		w.restoreHeader()
	case w.state == unsent && !w.gate.leftInCall:
		response.Apply(w.Header(), w.outerChanges)
	}
	// The middleware's call, and so w, stays reachable until the lease has expired. It must not keep the response so long.
	w.body, w.headerAtStatus, w.outerHeader = nil, nil, nil
}
