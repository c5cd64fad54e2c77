package redistest

import (
	"bytes"
	"context"
	"encoding"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Direct is a client for tests in a testing/synctest bubble. The clients of
// go-redis share one pool of timers, with which a caller waits for a connection,
// and a timer that was made in one bubble must not be used outside of it. Direct
// does not use go-redis's connections: a hook takes every command, and sends it
// over a connection that Direct has dialled. A subscription still has a
// connection of go-redis, which needs no such timer.
//
// Direct sends a command once, in RESP2 and without a handshake. It dials
// whenever all connections are in use. Of the options it heeds Dialer,
// ReadTimeout, WriteTimeout and ContextTimeoutEnabled. It does not support
// transactions.
type Direct struct {
	Client *redis.Client // add hooks with Direct.AddHook: Client does not call its own

	mu     sync.Mutex
	hooks  []redis.Hook
	idle   []*directConn
	conns  map[*directConn]bool // all that are open
	closed bool
}

// NewDirect returns a client with the options o, which is closed when the test
// ends.
func NewDirect(t testing.TB, o *redis.Options) *Direct {
	t.Helper()
	opt := *o
	opt.Protocol, opt.DisableIdentity = 2, true
	if opt.Addr == "" {
		opt.Addr = "127.0.0.1:6379" // never dialled; go-redis would look a name up
	}
	d := &Direct{Client: redis.NewClient(&opt), conns: map[*directConn]bool{}}
	d.Client.AddHook(front{d})
	t.Cleanup(func() {
		d.close()
		if err := d.Client.Close(); err != nil {
			t.Errorf("redistest: closing a direct client: %v", err)
		}
	})
	return d
}

// AddHook adds a hook as redis.Client's AddHook does.
func (d *Direct) AddHook(hook redis.Hook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hooks = append(d.hooks, hook)
}

// wrapped returns last, wrapped by the hooks with the method by. The hook that
// was added first is the outermost.
func wrapped[F any](d *Direct, last F, by func(redis.Hook, F) F) F {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.hooks) - 1; i >= 0; i-- {
		last = by(d.hooks[i], last)
	}
	return last
}

// front is the hook that takes the commands from go-redis.
type front struct{ *Direct }

func (f front) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return wrapped(f.Direct, next, redis.Hook.DialHook)(ctx, network, addr)
	}
}

func (f front) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hello" { // on the connection of a subscription
			return next(ctx, cmd)
		}
		var send redis.ProcessHook = func(ctx context.Context, cmd redis.Cmder) error {
			return f.send(ctx, []redis.Cmder{cmd})
		}
		return wrapped(f.Direct, send, redis.Hook.ProcessHook)(ctx, cmd)
	}
}

func (f front) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return wrapped[redis.ProcessPipelineHook](f.Direct, f.send, redis.Hook.ProcessPipelineHook)(ctx, cmds)
	}
}

// send sends commands in one write, and returns the first error of a command.
func (d *Direct) send(ctx context.Context, cmds []redis.Cmder) error {
	answered, err := 0, ctx.Err()
	if err == nil {
		answered, err = d.exchange(ctx, cmds)
	}
	for _, cmd := range cmds[answered:] {
		cmd.SetErr(err)
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// exchange fills in the replies, and returns how many have come. It closes the
// connection after an error that is not a reply.
func (d *Direct) exchange(ctx context.Context, cmds []redis.Cmder) (answered int, err error) {
	var request []byte
	for _, cmd := range cmds {
		if request, err = appendCommand(request, cmd.Args()); err != nil {
			return 0, err
		}
	}
	conn, err := d.take(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { d.leave(conn, err) }()
	o := d.Client.Options()
	if err := conn.SetWriteDeadline(limit(ctx, o, o.WriteTimeout)); err != nil {
		return 0, err
	}
	if _, err := conn.Write(request); err != nil {
		return 0, err
	}
	if err := conn.SetReadDeadline(limit(ctx, o, o.ReadTimeout)); err != nil {
		return 0, err
	}
	for i, cmd := range cmds {
		r, err := conn.replies.reply()
		if err != nil {
			return i, err
		}
		fill(cmd, r.raw)
	}
	return len(cmds), nil
}

// limit returns when a read or a write has to end, the zero time for never.
func limit(ctx context.Context, o *redis.Options, timeout time.Duration) (at time.Time) {
	if timeout > 0 {
		at = time.Now().Add(timeout)
	}
	if deadline, ok := ctx.Deadline(); ok && o.ContextTimeoutEnabled && (at.IsZero() || deadline.Before(at)) {
		return deadline
	}
	return at
}

// directConn is a connection, used by one exchange at a time.
type directConn struct {
	net.Conn
	replies *splitter
}

// take returns the idle connection that was used last, or dials one.
func (d *Direct) take(ctx context.Context) (*directConn, error) {
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

// leave gives a connection back.
func (d *Direct) leave(conn *directConn, failed error) {
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

// appendCommand appends a command as it is sent.
func appendCommand(b []byte, args []any) ([]byte, error) {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		var text []byte
		switch arg := arg.(type) {
		case string:
			text = []byte(arg)
		case []byte:
			text = arg
		case int:
			text = strconv.AppendInt(nil, int64(arg), 10)
		case int64:
			text = strconv.AppendInt(nil, arg, 10)
		case encoding.BinaryMarshaler:
			var err error
			if text, err = arg.MarshalBinary(); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("redistest: Direct cannot send a %T", arg)
		}
		b = append(fmt.Appendf(b, "$%d\r\n%s", len(text), text), "\r\n"...)
	}
	return b, nil
}

// fill sets the value or the error of a command to its reply.
func fill(cmd redis.Cmder, raw []byte) {
	if cmd, ok := cmd.(interface{ SetVal([]byte) }); ok { // a RawCmd
		cmd.SetVal(raw)
		return
	}
	v, _, err := decode(raw)
	if err != nil {
		cmd.SetErr(err)
		return
	}
	switch c := cmd.(type) {
	case interface{ SetVal(any) }:
		c.SetVal(v)
	case interface{ SetVal(string) }:
		setVal(cmd, c.SetVal, v)
	case interface{ SetVal(int64) }:
		setVal(cmd, c.SetVal, v)
	case *redis.BoolCmd:
		c.SetVal(v == int64(1))
	case *redis.DurationCmd: // of PTTL
		if n, _ := v.(int64); n < 0 { // go-redis leaves -1 and -2 as they are
			c.SetVal(time.Duration(n))
		} else {
			c.SetVal(time.Duration(n) * time.Millisecond)
		}
	case *redis.StringSliceCmd:
		c.SetVal(texts(v))
	case *redis.MapStringStringCmd:
		pairs := map[string]string{}
		for pair := range slices.Chunk(texts(v), 2) {
			pairs[pair[0]] = pair[1]
		}
		c.SetVal(pairs)
	default:
		cmd.SetErr(fmt.Errorf("redistest: Direct knows no %T", cmd))
	}
}

// setVal sets v, if it is of the command's type.
func setVal[V any](cmd redis.Cmder, set func(V), v any) {
	if v, ok := v.(V); ok {
		set(v)
		return
	}
	cmd.SetErr(fmt.Errorf("redistest: a %T has the reply %v", cmd, v))
}

func texts(v any) (all []string) {
	list, _ := v.([]any)
	for _, v := range list {
		text, _ := v.(string)
		all = append(all, text)
	}
	return all
}

// decode returns the first value of a whole RESP2 reply as go-redis does, and
// what comes after it. Null is the error redis.Nil.
func decode(raw []byte) (v any, rest []byte, err error) {
	line, rest, _ := bytes.Cut(raw, []byte("\r\n"))
	kind, text := line[0], string(line[1:])
	if kind == '+' {
		return text, rest, nil
	}
	if kind == '-' {
		return nil, rest, serverError(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, rest, err
	case kind == ':':
		return n, rest, nil
	case n < 0:
		return nil, rest, redis.Nil
	case kind == '$':
		return string(rest[:n]), rest[n+2:], nil
	case kind != '*':
		return nil, rest, fmt.Errorf("%w: type %q", errProtocol, kind)
	}
	all := make([]any, n)
	for i := range all {
		if all[i], rest, err = decode(rest); err != nil && !errors.Is(err, redis.Nil) {
			return nil, rest, err
		}
	}
	return all, rest, nil
}

// serverError is an error that a server has sent.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError marks it as a redis.Error.
func (serverError) RedisError() {}
