package capture

import (
	"errors"
	"net/http"
	"sync"

	"github.com/onceguard/onceguard/middleware/internal/buffer"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Writer is the http.ResponseWriter of a handler. Its methods of http.ResponseWriter and of http.ResponseController may
// be called concurrently; Begin, Seal, Deliver, Withdraw, Abort and what they return are for the serving goroutine alone.
//
// Until the copy in memory overflows, the handler does not learn that its client has disconnected: it must finish the
// response for the client's retry. A write error would make it stop early, and a part of the response would be stored as
// the whole.
//
// A Writer embeds nothing and has no Unwrap, so that nothing is written around it. io.Copy finds no ReadFrom and calls
// Write. Otherwise it behaves as net/http's writer does.
type Writer struct {
	w        http.ResponseWriter // the underlying writer
	observer SendObserver
	gate     gate
	state    state
	verdict  Verdict // set by Seal
	isHEAD   bool    // the request is a HEAD: its response has no body on the wire
	http2    bool    // or a later version

	// The header. Guarded by the gate until Seal, then the serving goroutine's.
	outerHeader   http.Header       // as the outer middlewares left it; nil if empty
	header        []response.Change // as it was when the handler set the status; later changes are trailers or have no effect
	handlerHeader http.Header       // as the handler left it, while the underlying writer has the one that is sent
	scratch       *response.Scratch // room for header
	length        int64             // Content-Length, -1 if there is none
	status        int               // final status, 0 until the handler has set it
	chunked       bool              // a Transfer-Encoding keeps the Content-Length from being sent
	exposed       bool              // the underlying writer may have kept parts of scratch
	writtenBefore bool              // at Begin the underlying writer reported that it was written to
	sent1xx       bool              // a 1xx status was sent, which some writers report as an answer

	// The body. Guarded as the header is.
	body     *buffer.Buffer // nil until something is written, and after an overflow
	limit    int            // the most bytes of the body that are kept
	written  int64          // bytes that the handler has written, kept or not
	overflow bool           // body is not the whole body
	hijacked bool

	mark  *mark // between Mark and Fix or Rewind
	fixed bool  // the response is final although the handler goes on
}

// SendObserver is told right before the first part of the response is sent. It must not call the Writer.
type SendObserver interface {
	// Sending is called before the first byte is sent: from then on the request must not run again.
	Sending()
}

// state is how much of the response has been given to the underlying writer. It only grows.
type state uint8

const (
	unsent     state = iota // nothing but 1xx statuses
	headerSent              // the final status and the header, and not yet the body so far
	sent                    // the body so far, too; each Write is passed on
)

// ErrReturned is the error of a method that is called after Seal or Abort.
var ErrReturned = errors.New("middleware: the handler has returned")

// Begin makes w hold back the response to r that is written to it, and to keep up to limit bytes of its body.
func (w *Writer) Begin(under http.ResponseWriter, r *http.Request, observer SendObserver, limit int) {
	w.w, w.observer, w.limit, w.length = under, observer, limit, -1
	w.isHEAD, w.http2 = r.Method == http.MethodHead, r.ProtoMajor >= 2
	w.scratch = response.NewScratch()
	if h := under.Header(); len(h) > 0 {
		w.outerHeader = h.Clone()
	}
	w.writtenBefore = isAnswered(under)
}

// under returns the underlying writer.
func (w *Writer) under() http.ResponseWriter { return w.w }

// Status returns the final status, 0 if the handler has set none or has answered around w.
func (w *Writer) Status() int { return w.status }

// SentStatus returns the final status if the client may have it, and 0 if not.
func (w *Writer) SentStatus() int {
	if w.state == unsent {
		return 0
	}
	return w.status
}

// Started reports whether the client may have a part of a final response.
func (w *Writer) Started() bool { return w.state != unsent || w.verdict == Bypassed }

// Scratch returns memory that is used again together with w's own, for what is stored of the response.
func (w *Writer) Scratch() *response.Scratch { return w.scratch }

// gate lets one goroutine into the Writer at a time, and only the serving one after it is closed.
//
// Its mutex is not held in a call to the underlying writer, which may take as long as the client likes; inWrite keeps the
// other goroutines out until it returns, so that the serving goroutine can close the gate at any time. A goroutine that
// returns from such a call to a closed gate may read closed, and nothing else of the Writer.
type gate struct {
	mu      sync.Mutex
	idle    chan struct{} // closed when inWrite becomes false; nil if nobody is waiting
	inWrite bool          // a goroutine is in a call to the underlying writer
	closed  bool          // by Seal or Abort
	stray   bool          // inWrite was true at that time
}

// enter takes mu when no other goroutine is in a call to the underlying writer. leave releases it.
func (g *gate) enter() {
	g.mu.Lock()
	for g.inWrite {
		if g.idle == nil {
			g.idle = make(chan struct{})
		}
		idle := g.idle
		g.mu.Unlock()
		<-idle
		g.mu.Lock()
	}
}

func (g *gate) leave() { g.mu.Unlock() }

// beginCall releases mu for a call to the underlying writer; endCall, deferred, takes it again even if that call panics.
// Whatever the caller changes in the Writer it changes before beginCall.
func (g *gate) beginCall() {
	g.inWrite = true
	g.mu.Unlock()
}

func (g *gate) endCall() {
	g.mu.Lock()
	g.inWrite = false
	if g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// isClosed reports whether the serving goroutine has closed the gate.
func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// close shuts out all goroutines but the caller's. It does not wait for one that is in a call to the underlying writer.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.stray = true, g.stray || g.inWrite
}

// drain waits, after close, until no goroutine is in a call to the underlying writer.
func (g *gate) drain() {
	if g.stray {
		g.enter()
		defer g.leave()
	}
}
