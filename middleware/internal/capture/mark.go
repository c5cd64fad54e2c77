package capture

// This file undoes or ends a response before the handler has returned. Any goroutine of the handler may call its
// methods of Writer; each of them enters the gate.

import (
	"errors"
	"net/http"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

var (
	// ErrAnswered is the error of a write to a response that is final.
	ErrAnswered = errors.New("middleware: the request is answered already")
	// ErrSent is Mark's error when a part of the response was sent before.
	ErrSent = errors.New("middleware: a part of the response was sent already")
	// ErrNoResponse is Fix's error when nothing was written since Mark, or Rewind has undone that.
	ErrNoResponse = errors.New("middleware: no response was written in the transaction")
	// ErrTooLong is the error of Fix, and of a Write between Mark and Fix, when the body is longer than the limit.
	ErrTooLong = errors.New("middleware: the response is too long to be stored")
	// ErrBroken is Fix's error when the body is shorter or longer than its Content-Length.
	ErrBroken = errors.New("middleware: the response does not have its Content-Length")
)

// mark is the response as it was when Mark was called, and what has happened since.
type mark struct {
	live    http.Header // a copy of the header that the handler changes
	bodyLen int

	// The fields of the Writer with the same names.
	header  []response.Change
	written int64
	length  int64
	status  int
	chunked bool

	touched bool // a status or a byte of the body was written since Mark
	tooLong bool // a Write was refused because of the limit
}

// touch is called on every write; m may be nil.
func (m *mark) touch() {
	if m != nil {
		m.touched = true
	}
}

// Mark begins a part of the response that Rewind can undo. Nothing is sent until Fix or Rewind. It returns ErrSent if a
// part of the response was sent already, ErrAnswered after Fix, and ErrReturned after Seal.
func (w *Writer) Mark() error {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.fixed:
		return ErrAnswered
	case w.state != unsent:
		return ErrSent
	}
	w.mark = &mark{
		live: w.Header().Clone(), header: w.headerAtStatus, bodyLen: len(w.body.Bytes()),
		written: w.written, length: w.length, status: w.status, chunked: w.chunked,
	}
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
		return ErrAnswered
	case w.mark == nil, !w.mark.touched:
		return ErrNoResponse
	case w.mark.tooLong:
		return ErrTooLong
	case w.isBroken(), w.status == http.StatusSwitchingProtocols:
		return ErrBroken
	}
	w.detectContentType(nil)
	w.handlerHeader = w.Header().Clone() // deep: the handler may still change the lists of values
	w.fixed = true
	return nil
}

// Rewind restores the response as it was at Mark, also after Fix. It does nothing after Seal, or without a Mark.
func (w *Writer) Rewind() {
	w.gate.enter()
	defer w.gate.leave()
	m := w.mark
	if w.gate.closed || m == nil {
		return
	}
	response.Replace(w.Header(), m.live)
	w.headerAtStatus, w.written, w.length, w.status, w.chunked = m.header, m.written, m.length, m.status, m.chunked
	w.body.Truncate(m.bodyLen)
	w.handlerHeader, w.fixed, w.mark = nil, false, nil
}

// Refuse makes later writes fail with ErrAnswered. The response will be withdrawn. It does nothing after Seal.
func (w *Writer) Refuse() {
	w.gate.enter()
	defer w.gate.leave()
	if !w.gate.closed {
		w.fixed = true
	}
}
