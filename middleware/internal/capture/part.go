package capture

// This file undoes or ends a response before the handler has returned. Any goroutine of the handler may call its
// methods of Writer; each of them enters the gate.

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// ErrSent is BeginPart's error when a part of the response was sent before.
var ErrSent = errors.New("middleware: a part of the response was sent already")

// part is the response as it was when BeginPart was called, and what has happened since.
type part struct {
	before content     // its body is a prefix of what is written since
	live   http.Header // a copy of the header that the handler changes

	touched bool // a status or a byte of the body was written since BeginPart or SetAside
	tooLong bool // a Write was refused because of the limit

	aside     *content    // what SetAside has put aside; nil before
	asideLive http.Header // the header that the handler changes, as it was then, with the handler's own lists of values
}

// touch is called on every write; p may be nil.
func (p *part) touch() {
	if p != nil {
		p.touched = true
	}
}

// BeginPart begins a part of the response that Rewind can undo. Nothing is sent until Committed or Rewind. It returns ErrSent if
// a part of the response was sent already, ErrAnswered after Committed and Freeze, and ErrReturned after Finish.
func (w *Writer) BeginPart() error {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.final:
		return journal.ErrAnswered
	case w.state != unsent:
		return ErrSent
	}
	w.part = &part{before: w.content, live: w.Header().Clone()}
	return nil
}

// SetAside calls encode, which stores what Response returns, and puts the response aside, with the trailers that the header
// has now. Then it restores the response as it was at BeginPart: a transaction that is run again writes its response anew, and
// calls SetAside again. Committed takes what was set aside last. After an error, which may be encode's, Rewind must still be
// called.
func (w *Writer) SetAside(encode func() error) error {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.final:
		return journal.ErrAnswered
	case w.part != nil && w.part.tooLong:
		return journal.ErrTooLong
	case w.part == nil, !w.part.touched, w.isBroken(), w.status == http.StatusSwitchingProtocols:
		return journal.ErrNoResponse
	}
	w.handlerHeader = w.Header().Clone() // deep: the handler may still change the lists of values
	if err := encode(); err != nil {
		return err
	}
	p, aside := w.part, w.content
	p.aside, p.asideLive = &aside, maps.Clone(w.Header())
	w.content = p.before
	w.body = slices.Clip(w.body) // what is written now must not overwrite what is put aside
	response.Replace(w.Header(), p.live.Clone())
	p.touched, p.tooLong = false, false
	return nil
}

// WrittenSince reports whether something was written since SetAside.
func (w *Writer) WrittenSince() bool {
	w.gate.enter()
	defer w.gate.leave()
	return w.part != nil && w.part.aside != nil && w.part.touched
}

// Committed makes the response that was set aside last final, and discards what was written since. It does nothing after
// Finish, or without SetAside.
func (w *Writer) Committed() {
	w.gate.enter()
	defer w.gate.leave()
	p := w.part
	if w.gate.closed || p == nil || p.aside == nil {
		return
	}
	w.content, w.final = *p.aside, true
	response.Replace(w.Header(), p.asideLive)
}

// Rewind restores the response as it was at BeginPart, also after SetAside. It does nothing after Finish, or without a
// BeginPart.
func (w *Writer) Rewind() {
	w.gate.enter()
	defer w.gate.leave()
	p := w.part
	if w.gate.closed || p == nil {
		return
	}
	w.content = p.before
	w.final, w.part = false, nil
	response.Replace(w.Header(), p.live) // last: the underlying writer may panic
}

// Freeze makes later writes fail with ErrAnswered. The response will be withdrawn. It does nothing after Finish.
func (w *Writer) Freeze() {
	w.gate.enter()
	defer w.gate.leave()
	if !w.gate.closed {
		w.final = true
	}
}
