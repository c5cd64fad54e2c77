package middleware

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// What http.ResponseController asks of a connection, passed on.

// Hijack hands over the connection. What is written to it cannot be stored. What was written before goes out before.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, errReturned
	}
	if r.status != 0 && provided(r.w, func(w http.ResponseWriter) bool { _, ok := w.(http.Hijacker); return ok }) {
		if !r.commit(nil) {
			return nil, nil, errReturned
		}
	}
	conn, buf, err := r.passHijack()
	switch {
	case err != nil:
		return conn, buf, err
	case r.closed: // what becomes of the response was decided without it
		_ = conn.Close()
		return nil, nil, errReturned
	}
	r.exec.commit()
	r.sent, r.hijacked = true, true
	return conn, buf, nil
}

func (r *recorder) passHijack() (net.Conn, *bufio.ReadWriter, error) {
	r.descend()
	defer r.ascend()
	return http.NewResponseController(r.w).Hijack()
}

func (r *recorder) SetReadDeadline(deadline time.Time) error {
	return http.NewResponseController(r.w).SetReadDeadline(deadline)
}

func (r *recorder) SetWriteDeadline(deadline time.Time) error {
	return http.NewResponseController(r.w).SetWriteDeadline(deadline)
}

func (r *recorder) EnableFullDuplex() error {
	return http.NewResponseController(r.w).EnableFullDuplex()
}

// Push is HTTP/2's. Elsewhere it is not supported, which a handler has to expect of HTTP/2 clients too.
func (r *recorder) Push(target string, opts *http.PushOptions) error {
	if pusher, ok := r.w.(http.Pusher); ok {
		return pusher.Push(target, opts)
	}
	return http.ErrNotSupported
}
