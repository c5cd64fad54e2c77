package capture

import (
	"bufio"
	"net"
	"net/http"
)

// This file has the methods that a ResponseWriter may or may not have, and that handlers ask for by a type assertion. A
// Tee answers such an assertion as the underlying writer would, so its Writer has one type for each set of methods.

// closeNotifier is http.CloseNotifier, which is deprecated and still used: gin's Stream panics without it.
type closeNotifier interface{ CloseNotify() <-chan bool }

// control is the part of a Tee's Writer that is not passed to the underlying writer directly.
type control struct{ *Tee }

func (c control) Flush() { _ = c.FlushError() }

func (c control) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(c.w).Hijack()
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hijacked = true
	}
	return conn, buf, err
}

// optional says which of the optional methods a writer has.
type optional struct{ flush, hijack, push, notify bool }

// Writer returns t with those of the methods Flush, Hijack, Push and CloseNotify that the underlying writer has.
func (t *Tee) Writer() http.ResponseWriter {
	var has optional
	_, has.flush = t.w.(http.Flusher)
	_, has.hijack = t.w.(http.Hijacker)
	p, pushes := t.w.(http.Pusher)
	n, notifies := t.w.(closeNotifier)
	has.push, has.notify = pushes, notifies
	if has.flush {
		return t.flushing(has, p, n)
	}
	return t.unflushing(has, p, n)
}

// flushing returns the Writer of a Tee with Flush.
func (t *Tee) flushing(has optional, p http.Pusher, n closeNotifier) http.ResponseWriter {
	c := control{t}
	switch has.flush = false; has {
	case optional{hijack: true, push: true, notify: true}:
		return struct {
			*Tee
			http.Flusher
			http.Hijacker
			http.Pusher
			closeNotifier
		}{t, c, c, p, n}
	case optional{hijack: true, push: true}:
		return struct {
			*Tee
			http.Flusher
			http.Hijacker
			http.Pusher
		}{t, c, c, p}
	case optional{hijack: true, notify: true}:
		return struct {
			*Tee
			http.Flusher
			http.Hijacker
			closeNotifier
		}{t, c, c, n}
	case optional{hijack: true}:
		return struct {
			*Tee
			http.Flusher
			http.Hijacker
		}{t, c, c}
	case optional{push: true, notify: true}:
		return struct {
			*Tee
			http.Flusher
			http.Pusher
			closeNotifier
		}{t, c, p, n}
	case optional{push: true}:
		return struct {
			*Tee
			http.Flusher
			http.Pusher
		}{t, c, p}
	case optional{notify: true}:
		return struct {
			*Tee
			http.Flusher
			closeNotifier
		}{t, c, n}
	}
	return struct {
		*Tee
		http.Flusher
	}{t, c}
}

// unflushing returns the Writer of a Tee without Flush.
func (t *Tee) unflushing(has optional, p http.Pusher, n closeNotifier) http.ResponseWriter {
	c := control{t}
	switch has.flush = false; has {
	case optional{hijack: true, push: true, notify: true}:
		return struct {
			*Tee
			http.Hijacker
			http.Pusher
			closeNotifier
		}{t, c, p, n}
	case optional{hijack: true, push: true}:
		return struct {
			*Tee
			http.Hijacker
			http.Pusher
		}{t, c, p}
	case optional{hijack: true, notify: true}:
		return struct {
			*Tee
			http.Hijacker
			closeNotifier
		}{t, c, n}
	case optional{hijack: true}:
		return struct {
			*Tee
			http.Hijacker
		}{t, c}
	case optional{push: true, notify: true}:
		return struct {
			*Tee
			http.Pusher
			closeNotifier
		}{t, p, n}
	case optional{push: true}:
		return struct {
			*Tee
			http.Pusher
		}{t, p}
	case optional{notify: true}:
		return struct {
			*Tee
			closeNotifier
		}{t, n}
	}
	return t
}
