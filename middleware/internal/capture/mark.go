package capture

// This file undoes or ends a response before the handler has returned. Any goroutine of the handler may call its
// methods of Writer; each of them enters the gate.

import (
	"errors"
	"maps"
	"net/http"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware/internal/buffer"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// ErrSent is Mark's error when a part of the response was sent before.
var ErrSent = errors.New("middleware: a part of the response was sent already")

// mark is the response as it was when Mark was called, and what has happened since.
type mark struct {
	before  content
	bodyLen int
	live    http.Header // a copy of the header that the handler changes

	touched bool // a status or a byte of the body was written since Mark or SetAside
	tooLong bool // a Write was refused because of the limit

	fixed     *content    // what SetAside has put aside; nil before
	fixedLive http.Header // the header that the handler changes, as it was then, with the handler's own lists of values
}

// touch is called on every write; m may be nil.
func (m *mark) touch() {
	if m != nil {
		m.touched = true
	}
}

// Mark begins a part of the response that Rewind can undo. Nothing is sent until Keep or Rewind. It returns ErrSent if
// a part of the response was sent already, ErrAnswered after Fix, and ErrReturned after Seal.
func (w *Writer) Mark() error {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.fixed:
		return journal.ErrAnswered
	case w.state != unsent:
		return ErrSent
	}
	w.mark = &mark{before: w.content, bodyLen: len(w.body.Bytes()), live: w.Header().Clone()}
	return nil
}

// Fix makes the response final, with the trailers that the header has now. If it fails, it has changed nothing, and
// Rewind must still be called.
func (w *Writer) Fix() error {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.fixed:
		return journal.ErrAnswered
	case w.mark == nil, !w.mark.touched:
		return journal.ErrNoResponse
	case w.mark.tooLong:
		return journal.ErrTooLong
	case w.isBroken(), w.status == http.StatusSwitchingProtocols:
		return journal.ErrBroken
	}
	w.detectContentType(nil)
	w.handlerHeader = w.Header().Clone() // deep: the handler may still change the lists of values
	w.fixed = true
	return nil
}

// SetAside puts a fixed response aside, and restores the response as it was at Mark: a transaction that is run again
// writes its response anew, and Fix is called again. Keep takes what was set aside last. SetAside is called when the
// response is encoded and before the transaction is committed. It does nothing without Fix, or after Seal.
func (w *Writer) SetAside() {
	w.gate.enter()
	defer w.gate.leave()
	if w.gate.closed || !w.fixed || w.mark == nil {
		return
	}
	m := w.mark
	fixed := w.content
	fixed.headerAtStatus = response.Clone(fixed.headerAtStatus) // the next status is set in the same memory
	m.fixed, m.fixedLive = &fixed, maps.Clone(w.Header())
	w.content = m.before
	w.body = nil
	if m.bodyLen > 0 {
		w.body = buffer.New()
		w.body.Append(fixed.body.Bytes()[:m.bodyLen], w.limit)
	}
	response.Replace(w.Header(), m.live.Clone())
	m.touched, m.tooLong, w.fixed = false, false, false
}

// WrittenSince reports whether something was written since SetAside.
func (w *Writer) WrittenSince() bool {
	w.gate.enter()
	defer w.gate.leave()
	return w.mark != nil && w.mark.fixed != nil && w.mark.touched
}

// Keep makes the response that was set aside last final, and discards what was written since. It does nothing after
// Seal, or without SetAside.
func (w *Writer) Keep() {
	w.gate.enter()
	defer w.gate.leave()
	m := w.mark
	if w.gate.closed || m == nil || m.fixed == nil {
		return
	}
	w.body.Free()
	w.content, w.fixed = *m.fixed, true
	response.Replace(w.Header(), m.fixedLive)
}

// Rewind restores the response as it was at Mark, also after Fix and SetAside. It does nothing after Seal, or without a
// Mark.
func (w *Writer) Rewind() {
	w.gate.enter()
	defer w.gate.leave()
	m := w.mark
	if w.gate.closed || m == nil {
		return
	}
	response.Replace(w.Header(), m.live)
	m.before.body = w.body // after SetAside it is another buffer, with the same bytes
	w.content = m.before
	w.body.Truncate(m.bodyLen)
	w.fixed, w.mark = false, nil
}

// Refuse makes later writes fail with ErrAnswered. The response will be withdrawn. It does nothing after Seal.
func (w *Writer) Refuse() {
	w.gate.enter()
	defer w.gate.leave()
	if !w.gate.closed {
		w.fixed = true
	}
}
