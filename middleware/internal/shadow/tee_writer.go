package shadow

// This file contains the optional methods of a ResponseWriter, which handlers find by a type assertion. The assertion
// must succeed if and only if it would on the underlying writer. So a Tee's Writer has one type for each set of
// methods.

import (
	"bufio"
	"net"
	"net/http"
)

// closeNotifier is http.CloseNotifier, which is deprecated and still used: gin's Stream panics without it.
type closeNotifier interface{ CloseNotify() <-chan bool }

// control has those optional methods that a Tee observes. Push and CloseNotify are the underlying writer's own.
type control struct{ *Tee }

func (c control) Flush() { _ = c.FlushError() }

func (c control) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(c.under).Hijack()
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hijacked = true
	}
	return conn, buf, err
}

// optional is which of the optional methods, apart from Flush, a writer has.
type optional struct{ hijack, push, notify bool }

// Writer returns t with those of the methods Flush, Hijack, Push and CloseNotify that the underlying writer has.
func (t *Tee) Writer() http.ResponseWriter {
	_, flushes := t.under.(http.Flusher)
	_, hijacks := t.under.(http.Hijacker)
	pusher, pushes := t.under.(http.Pusher)
	notifier, notifies := t.under.(closeNotifier)
	has := optional{hijack: hijacks, push: pushes, notify: notifies}
	if flushes {
		return t.withFlush(has, pusher, notifier)
	}
	return t.withoutFlush(has, pusher, notifier)
}

func (t *Tee) withFlush(has optional, p http.Pusher, n closeNotifier) http.ResponseWriter {
	c := control{t}
	switch has {
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

func (t *Tee) withoutFlush(has optional, p http.Pusher, n closeNotifier) http.ResponseWriter {
	c := control{t}
	switch has {
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
