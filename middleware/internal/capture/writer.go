package capture

import (
	"errors"
	"net/http"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Writer is the http.ResponseWriter of a handler. Its methods of http.ResponseWriter and of http.ResponseController may
// be called concurrently. Begin, Finish, Deliver, Withdraw, Abort and what they return are for the serving goroutine
// alone.
//
// While the buffer has the whole body, the handler does not learn that its client has disconnected: the response must
// be complete for the client's retry. After a write error the handler would stop early, and its partial response would
// be stored as complete.
//
// A Writer embeds nothing and has no Unwrap, so that nothing is written around it. io.Copy finds no ReadFrom and calls
// Write. Otherwise it behaves as net/http's writer does.
type Writer struct {
	under    http.ResponseWriter // the underlying writer
	observer SendObserver
	gate     gate
	state    state
	verdict  Verdict // set by Finish
	isHEAD   bool    // the request is a HEAD: its response has no body on the wire
	http2    bool    // or a later version

	content // guarded by the gate until Finish, then the serving goroutine's

	// The header. Guarded as content is.
	outerHeader   http.Header       // as the outer middlewares left it; nil if empty
	exposed       bool              // the underlying writer's header is that at the status, and not the handler's
	writtenBefore bool              // at Begin the underlying writer reported that it was written to
	sent1xx       bool              // a 1xx status was sent; some writers report it as an answer
	in1xx         bool              // one is being sent, or was cut off: handlerHeader is set
	outerChanges  []response.Change // that the underlying writer made to the header during a 1xx; sent with the final status

	// The body. Guarded as content is.
	limit    int  // the most bytes of the body that are buffered
	overflow bool // the body outgrew limit; bufferBody sends what was buffered, and then sets body to nil
	hijacked bool // implies that state is sent

	part  *part // set by BeginPart, nil again after Rewind
	final bool  // by Committed or Freeze: later writes fail although the handler has not returned
}

// content is a response, as far as the handler has written it.
type content struct {
	headerAtStatus []response.Change // the header when the handler set the status; later changes are trailers or ignored
	body           []byte            // nil until something is written, and after an overflow
	written        int64             // bytes that the handler has written, buffered or not
	length         int64             // Content-Length, -1 if there is none
	status         int               // final status, 0 until the handler has set it
	chunked        bool              // a Transfer-Encoding keeps the Content-Length from being sent
	handlerHeader  http.Header       // as the handler left it, while the underlying writer has the one that is sent, also of a 1xx
}

// SendObserver learns that the client may get a part of the response, so that the request must not run again.
type SendObserver interface {
	// Sending is called before the first byte is sent. After a Hijack, it is called before the handler gets the
	// connection. If the handler has answered around the Writer, Finish or Abort calls it. It may be called twice. It must
	// not call the Writer.
	Sending()
}

// state is how much of the final response was passed to the underlying writer. It only grows.
//
//	state       event                                         next state   the client has, or is being sent
//	unsent      WriteHeader, Write up to the limit            unsent       at most 1xx statuses
//	unsent      Flush, Write past the limit, Hijack           headerSent   the status and the header
//	unsent      Hijack before a status is set                 sent         what the handler writes to the connection
//	headerSent  the same Flush, Write or Hijack continues     sent         also the body so far
//	headerSent  Finish or Abort cuts the call off             headerSent   the status and the header
//	headerSent  the underlying writer panics in that call     sent         an unknown part of it
//	sent        Write, Flush                                  sent         also what was written
//	sent        Hijack                                        sent         also what the handler writes to the connection
//	any         Finish, Abort                                 unchanged    what it had
//	unsent      Withdraw                                      unsent       at most 1xx statuses from this Writer
//	any         Deliver if Whole, Partial or Broken           sent         all that the Writer has
//	unsent      Deliver if TimedOut                           unsent       a 504 without a body
//	unsent      Deliver if Bypassed                           unsent       what the handler sent around the Writer
//	unsent      Deliver if LeftOpen                           unsent       at most 1xx statuses from this Writer
type state uint8

const (
	unsent     state = iota // at most 1xx statuses
	headerSent              // the final status and the header, but not yet the body so far
	sent                    // also the body so far; each Write is passed on
)

// ErrReturned is the error of a method that is called after Finish or Abort.
var ErrReturned = errors.New("middleware: the handler has returned")

// Begin makes w buffer the response to r, and at most limit bytes of its body. under is the underlying writer.
func (w *Writer) Begin(under http.ResponseWriter, r *http.Request, observer SendObserver, limit int) {
	w.under, w.observer, w.limit, w.length = under, observer, limit, -1
	w.gate.idle.L = &w.gate.mu
	w.isHEAD, w.http2 = r.Method == http.MethodHead, r.ProtoMajor >= 2
	if h := under.Header(); len(h) > 0 {
		w.outerHeader = h.Clone()
	}
	w.writtenBefore = IsAnswered(under)
}

// Underlying returns the writer that Begin was given.
func (w *Writer) Underlying() http.ResponseWriter { return w.under }

// Status returns the final status. It is 0 if the handler has set none, or has answered around w.
func (w *Writer) Status() int { return w.status }

// SentStatus returns the final status if the client may have it, and otherwise 0.
func (w *Writer) SentStatus() int {
	if w.state == unsent {
		return 0
	}
	return w.status
}

// Started reports whether the client may have a part of a final response, or will get one from an outer middleware.
func (w *Writer) Started() bool {
	return w.state != unsent || w.verdict == Bypassed || w.verdict == LeftOpen
}
