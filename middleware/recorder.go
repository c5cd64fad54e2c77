package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/buffer"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// recorder is the ResponseWriter that a handler writes to. It holds the response back until it is stored. It lets it
// through from when the handler flushes or hijacks, or has written more than is kept; then it keeps a copy of what it
// can.
//
// As long as the copy is whole, the handler does not learn that the client has left: it shall finish the response, for
// the client's retry. An error in place of it would make a handler stop, and what it has written so far look like all
// of it.
//
// It embeds nothing and has no Unwrap, so that nothing slips past it; io.Copy finds no ReadFrom and comes through
// Write. What it has beyond Write behaves as that of net/http's own writer.
//
// What it holds back is in memory that is used again, as is what net/http has below w. So when the handler has returned
// it is cut off: a goroutine that the handler has left behind gets an error. One that is already in a method of w may stay
// there for as long as the client reads nothing. The key is settled meanwhile; a goroutine that comes back changes nothing and
// calls w no more. ServeHTTP waits for that before it sends the rest and returns. (A panic does not wait. The call that is
// under way then is as dangerous as on the bare writer.)
type recorder struct {
	mu     sync.Mutex // held in whatever the handler calls, but not in the methods of w
	below  bool       // somebody is in one of these
	idle   sync.Cond  // nobody is
	closed bool       // cutOff was called: from then on all else is the run's own goroutine's, without mu

	stray   bool        // somebody was below at that time
	end     http.Header // the header as the handler left it, while it stands as it is sent
	headed  bool        // the status has been let through, and the body so far has not
	expired bool        // the response is that the time was over

	scratch *response.Scratch // of header
	exposed bool              // somebody may have kept what is in there

	w     http.ResponseWriter
	exec  *Execution
	head  bool // a HEAD request: its response has no body on the wire
	http2 bool // or newer
	limit int

	before   http.Header       // what the outer middlewares had set
	answered bool              // w says that it was written to before the handler was called
	informed bool              // an informational status was let through: some writers count it as an answer
	bypassed bool              // it says so only now, and the handler has not come through here
	status   int               // the final one, 0 until the handler has said it
	header   []response.Change // as it was then; later changes are trailers, or nothing
	length   int64             // its Content-Length, -1 if there is none
	chunked  bool              // the Content-Length is not sent
	body     *buffer.Buffer    // nil until something was written

	written  int64 // what the handler wanted to write
	sent     bool  // header, and the body so far, have been let through
	overflow bool  // body is not whole
	hijacked bool
}

// begin makes r the recorder of what is written to w.
func (r *recorder) begin(w http.ResponseWriter, req *http.Request, exec *Execution, limit int) {
	r.w, r.exec, r.limit, r.length = w, exec, limit, -1
	r.idle.L = &r.mu
	r.head, r.http2 = req.Method == http.MethodHead, req.ProtoMajor >= 2
	r.scratch = response.NewScratch()
	if h := w.Header(); len(h) > 0 {
		r.before = h.Clone()
	}
	r.answered = isAnswered(w)
}

// lock begins whatever the handler calls. It waits until nobody is below.
func (r *recorder) lock() {
	r.mu.Lock()
	for r.below {
		r.idle.Wait()
	}
}

// descend is called before a method of w, and ascend, in a defer, after it: w may panic. All that the caller changes it
// has changed by then. When it comes back it has to look at closed: if the recorder was cut off meanwhile, nothing here
// is its own any more, nor is w.
func (r *recorder) descend() {
	r.below = true
	r.mu.Unlock()
}

func (r *recorder) ascend() {
	r.mu.Lock()
	r.below = false
	r.idle.Broadcast()
}

// pass writes to w. The run's own goroutine needs no lock for it: all others are cut off.
func (r *recorder) pass(p []byte) (int, error) {
	if !r.closed {
		r.descend()
		defer r.ascend()
	}
	return r.w.Write(p)
}

func (r *recorder) passStatus(status int) {
	if !r.closed {
		r.descend()
		defer r.ascend()
	}
	r.w.WriteHeader(status)
}

// cutOff is called when the handler has returned. It does not wait for a goroutine that is below: the key must be settled though
// a client reads nothing.
func (r *recorder) cutOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.stray = true, r.stray || r.below
}

// drain waits until nobody is below. It is called after cutOff, before the run's own goroutine goes there.
func (r *recorder) drain() {
	if r.stray {
		r.lock()
		defer r.mu.Unlock()
	}
}

// errBypassed is the Event's error of a handler that answered around the recorder.
var errBypassed = errors.New("middleware: the handler answered on another ResponseWriter than the one that it was given, " +
	"so its response cannot be stored")

// findBypass finds out, after cutOff, whether the handler has answered on what w wraps: a framework may hand out a writer
// of its own besides. What it has answered has left, so the key must not be freed.
func (r *recorder) findBypass() {
	if r.sent || r.hijacked || r.stray || r.answered || r.informed || !isAnswered(r.w) {
		return
	}
	r.bypassed, r.status = true, 0 // what the client has got is not known
	r.exec.commit()
}

// isAnswered reports whether w, or what it wraps, says that it was written to. The writers of gin and negroni tell that.
func isAnswered(w http.ResponseWriter) bool {
	return provided(w, func(w http.ResponseWriter) bool {
		writer, ok := w.(interface{ Written() bool })
		return ok && writer.Written()
	})
}

// errReturned is told to a goroutine that writes although its handler has returned.
var errReturned = errors.New("middleware: the handler has returned")

// free lets others use the memory. It is called after cutOff, and when the response has gone out.
func (r *recorder) free() {
	if !r.stray {
		r.body.Free()
		if !r.exposed {
			r.scratch.Free()
		}
	}
	r.forget()
}

// forget lets go of the memory. A lease that is left to run out keeps the whole call until then.
func (r *recorder) forget() { r.body, r.header, r.before, r.scratch = nil, nil, nil, nil }

// Header returns the outer header, so that the handler sees and changes what the outer middlewares have set.
func (r *recorder) Header() http.Header { return r.w.Header() }

// WriteHeader takes the header for the response, but for an informational status, which goes out at once and is never
// the response's (RFC 9110 section 15.2).
func (r *recorder) WriteHeader(status int) {
	r.lock()
	defer r.mu.Unlock()
	r.writeHeader(status)
}

func (r *recorder) writeHeader(status int) {
	switch {
	case r.closed, r.hijacked, r.status != 0:
	case status < 100, status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	case status < 200 && (status != http.StatusSwitchingProtocols || r.http2): // HTTP/2 has no 101, RFC 9113 section 8.6
		r.informed = true
		r.passStatus(status)
	default:
		r.decide(status)
	}
}

// decide takes the header for a final status.
func (r *recorder) decide(status int) {
	r.status = status
	r.header = r.scratch.Take(r.Header())
	r.readLength()
}

// readLength takes the Content-Length. As in net/http one that is no number is none, and one beside a Transfer-Encoding
// is not sent, yet still counts what is written.
func (r *recorder) readLength() {
	text := response.First(r.header, "Content-Length")
	if text == "" {
		return
	}
	coding := response.First(r.header, "Transfer-Encoding")
	r.chunked = !r.http2 && coding != "" && coding != "identity"
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n >= 0 {
		r.length = n
	}
	if r.length < 0 || r.chunked {
		r.header = slices.DeleteFunc(r.header, func(c response.Change) bool { return c.Name == "Content-Length" })
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.lock()
	defer r.mu.Unlock()
	if err := r.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	switch {
	case r.overflow:
	case len(r.body.Bytes())+len(p) > r.limit:
		r.overflow = true // at once: the client may keep this from going on
		if !r.commit(p) {
			return 0, errReturned
		}
		r.body = nil
	default:
		if r.body == nil {
			r.body = buffer.New()
		}
		r.body.Append(p, r.limit)
	}
	if r.sent {
		switch n, err := r.pass(p); {
		case r.closed:
			return n, errReturned
		case r.overflow:
			return n, err
		}
	}
	return len(p), nil
}

func (r *recorder) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

// admit tells what the bare writer would say to n bytes more.
func (r *recorder) admit(n int) error {
	switch {
	case r.closed:
		return errReturned
	case r.hijacked:
		return http.ErrHijacked
	case r.status == 0:
		r.writeHeader(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !response.BodyAllowed(r.status):
		return http.ErrBodyNotAllowed
	}
	r.written += int64(n)
	if r.length >= 0 && r.written > r.length {
		return http.ErrContentLength
	}
	return nil
}

// commit lets the header and the body so far through before the response is stored: from then on the key is never freed.
// The next bytes only serve to tell the Content-Type. It tells whether the recorder has not been cut off meanwhile.
func (r *recorder) commit(next []byte) (open bool) {
	if r.sent {
		return true
	}
	r.exec.commit()
	defer r.resume()
	r.send(next)
	return !r.closed
}

// resume gives the handler, which goes on, its header back.
func (r *recorder) resume() {
	if r.closed {
		return
	}
	if r.exposed {
		response.Replace(r.Header(), r.end)
	}
	r.end, r.headed = nil, false // even if w panicked
}

// deliver sends, when the key has been settled, what has not been sent yet.
func (r *recorder) deliver() {
	switch {
	case !r.sent:
		r.send(nil)
	case r.headed: // a goroutine left behind has come no further
		r.sendBody()
	}
	if r.end != nil {
		response.ReplaceTrailers(r.Header(), r.end, response.ValuesOf(r.header, "Trailer"))
	}
}

// send sends the header and the body so far. It leaves the header as it was sent.
func (r *recorder) send(next []byte) {
	closed := r.closed
	r.sent, r.headed = true, true
	r.sniff(next)
	h := r.Header()
	changed := !response.Unchanged(h, r.header) // most often nothing was since
	if changed || !closed {                     // w may change it too, while somebody reads what the handler has left
		r.end = maps.Clone(h) // with the handler's own slices: it may still change what is in them
	}
	if changed {
		r.exposed = true
		clear(h)
		response.Apply(h, r.header)
		response.Announce(h, r.end)
	}
	r.passStatus(r.status)
	if r.closed == closed {
		r.sendBody()
	}
}

// sendBody sends the body so far.
func (r *recorder) sendBody() {
	closed := r.closed
	r.headed = false
	if body := r.body.Bytes(); len(body) > 0 {
		r.body.SetLent(true)
		_, err := r.pass(body)
		// The client may have left; the response is stored all the same. After an error the bytes may still be on their
		// way: a Write of net/http's HTTP/2 returns when a client gives up the stream, whatever its connection does.
		if r.closed == closed {
			r.body.SetLent(err != nil)
		}
	}
}

// sniff sets the Content-Type as net/http would, so that it is stored.
func (r *recorder) sniff(next []byte) {
	const considered = 512
	coded := response.First(r.header, "Content-Encoding") != "" || response.First(r.header, "Transfer-Encoding") != "" && !r.http2
	if coded || response.Find(r.header, "Content-Type") >= 0 {
		return
	}
	start := r.body.Bytes()
	start = start[:min(len(start), considered)]
	if more := min(considered-len(start), len(next)); more > 0 {
		start = append(start[:len(start):len(start)], next[:more]...)
	}
	if len(start) > 0 {
		r.header = append(r.header, response.Change{Op: response.OpSet, Name: "Content-Type", Values: []string{http.DetectContentType(start)}})
	}
}

// silent reports whether the handler has said nothing yet, not even a status.
func (r *recorder) silent() bool { return r.status == 0 && !r.hijacked }

// finish is called when the handler has returned: silence is 200 then.
func (r *recorder) finish() {
	if r.silent() {
		r.decide(http.StatusOK)
	}
	if !r.sent && !r.hijacked {
		r.sniff(nil)
	}
}

// giveUp is finish for a handler that said nothing when its context was over: silence is no 200 then.
func (r *recorder) giveUp() { r.expired, r.status = true, http.StatusGatewayTimeout }

// deliverTimeout is deliver then, without what the handler has prepared in the header. If the outer deadline has passed,
// the middleware that set it answers first: what http.TimeoutHandler answers makes this one void.
func (r *recorder) deliverTimeout(outer context.Context) {
	if deadline, ok := outer.Deadline(); ok && !time.Now().Before(deadline) {
		if done := outer.Done(); done != nil { // a context of somebody's own may have none
			<-done
		}
	}
	r.takeBack()
	r.w.WriteHeader(r.status)
}

// takeBack undoes what the handler did to the header of a response that does not go out, so that another one can. It is
// called after drain.
func (r *recorder) takeBack() {
	r.sent = true
	response.Replace(r.Header(), r.before)
}

// withdraw takes back a response that the handler has begun and not finished, so that another answer starts
// from the header that was there before. It does not if somebody is below, who may be reading it.
func (r *recorder) withdraw() {
	if !r.sent && !r.stray && r.status != 0 {
		response.Replace(r.Header(), r.before)
	}
}

// broken reports whether fewer or more bytes came than Content-Length says.
func (r *recorder) broken() bool {
	if r.hijacked || r.head || !response.BodyAllowed(r.status) || r.length < 0 {
		return false
	}
	return r.written > r.length || r.written < r.length && !r.chunked
}

// whole reports whether the response can be replayed. A 101 is about its connection, like what is hijacked.
func (r *recorder) whole() bool {
	return !r.hijacked && r.status != http.StatusSwitchingProtocols && !r.overflow && !r.broken()
}

// seen returns the status that the client has got, 0 if none.
func (r *recorder) seen() int {
	if !r.sent {
		return 0
	}
	return r.status
}

// FlushError lets the response through, if what is below can flush.
func (r *recorder) FlushError() error {
	r.lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errReturned
	case r.hijacked:
		return http.ErrHijacked
	case !canFlush(r.w):
		return http.ErrNotSupported
	case r.status == 0:
		r.writeHeader(http.StatusOK)
	}
	if !r.commit(nil) {
		return errReturned
	}
	switch err := r.passFlush(); {
	case r.closed:
		return errReturned
	case r.overflow:
		return err
	}
	return nil
}

func (r *recorder) passFlush() error {
	r.descend()
	defer r.ascend()
	return http.NewResponseController(r.w).Flush()
}

func (r *recorder) Flush() { _ = r.FlushError() }

// canFlush tells what http.ResponseController.Flush would find, without flushing.
func canFlush(w http.ResponseWriter) bool {
	return provided(w, func(w http.ResponseWriter) bool {
		switch w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		}
		return false
	})
}

// provided reports whether w, or what it wraps, has what is looked for. The recorder of a middleware around this one has
// all of it, and what is below that decides.
func provided(w http.ResponseWriter, has func(http.ResponseWriter) bool) bool {
	for {
		if outer, ok := w.(*recorder); ok {
			w = outer.w
			continue
		}
		if has(w) {
			return true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wrapper.Unwrap()
	}
}
