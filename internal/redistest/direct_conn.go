package redistest

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// directConn is a connection. One exchange uses it at a time.
type directConn struct {
	net.Conn
	replies *splitter
}

// getConn returns the most recently used idle connection, or dials one.
func (d *Direct) getConn(ctx context.Context) (*directConn, error) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		defer d.mu.Unlock()
		conn := d.idle[n-1]
		d.idle = d.idle[:n-1]
		return conn, nil
	}
	d.mu.Unlock()

	o := d.Client.Options()
	c, err := wrapped[redis.DialHook](d, o.Dialer, redis.Hook.DialHook)(ctx, o.Network, o.Addr)
	if err != nil {
		return nil, err
	}
	conn := &directConn{c, newSplitter(c)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = c.Close()
		return nil, redis.ErrClosed
	}
	d.conns[conn] = true
	return conn, nil
}

// putConn makes a connection idle, or closes it if the exchange failed.
func (d *Direct) putConn(conn *directConn, failed error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if failed == nil && !d.closed {
		d.idle = append(d.idle, conn)
		return
	}
	delete(d.conns, conn)
	_ = conn.Close()
}

func (d *Direct) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed, d.idle = true, nil
	for conn := range d.conns {
		_ = conn.Close()
	}
}

// ioDeadline returns when a read or a write must end. The zero time means never.
func ioDeadline(ctx context.Context, o *redis.Options, timeout time.Duration) (at time.Time) {
	if timeout > 0 {
		at = time.Now().Add(timeout)
	}
	if deadline, ok := ctx.Deadline(); ok && o.ContextTimeoutEnabled && (at.IsZero() || deadline.Before(at)) {
		return deadline
	}
	return at
}
