package redistest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Direct is a client for tests in a testing/synctest bubble. All clients of go-redis share a pool of timers for waiting
// for a connection, and a timer made in one bubble must not be used outside of it. So a hook sends every command on a
// connection of Direct's own. Only a subscription, which needs no such timer, uses one of go-redis.
//
// Direct sends a command once, in RESP2 and without a handshake. It dials when all connections are in use. It respects
// the options Dialer, ReadTimeout, WriteTimeout and ContextTimeoutEnabled. It does not support transactions.
type Direct struct {
	Client *redis.Client // add hooks by Direct.AddHook, not by Client.AddHook

	mu     sync.Mutex
	hooks  []redis.Hook
	idle   []*directConn
	conns  map[*directConn]bool // open ones, idle or in use
	closed bool
}

// NewDirect returns a client with a copy of the options o. The end of the test closes it.
func NewDirect(t testing.TB, o *redis.Options) *Direct {
	t.Helper()
	opt := *o
	opt.Protocol, opt.DisableIdentity = 2, true
	if opt.Addr == "" {
		opt.Addr = "127.0.0.1:6379" // not dialled; go-redis would resolve a name
	}
	d := &Direct{Client: redis.NewClient(&opt), conns: map[*directConn]bool{}}
	d.Client.AddHook(interceptor{d})
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

// wrapped returns last, wrapped by the method by of each hook. The hook that was added first is the outermost.
func wrapped[F any](d *Direct, last F, by func(redis.Hook, F) F) F {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.hooks) - 1; i >= 0; i-- {
		last = by(d.hooks[i], last)
	}
	return last
}

// interceptor is the hook that takes the commands from go-redis.
type interceptor struct{ *Direct }

func (i interceptor) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return wrapped(i.Direct, next, redis.Hook.DialHook)(ctx, network, addr)
	}
}

func (i interceptor) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hello" { // sent on the connection of a subscription
			return next(ctx, cmd)
		}
		var send redis.ProcessHook = func(ctx context.Context, cmd redis.Cmder) error {
			return i.send(ctx, []redis.Cmder{cmd})
		}
		return wrapped(i.Direct, send, redis.Hook.ProcessHook)(ctx, cmd)
	}
}

func (i interceptor) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return wrapped[redis.ProcessPipelineHook](i.Direct, i.send, redis.Hook.ProcessPipelineHook)(ctx, cmds)
	}
}

// send sends the commands in one write, and returns the first error of any of them.
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

// exchange sends the commands and sets their replies. It returns the number of replies. After an error that is not a
// reply it closes the connection.
func (d *Direct) exchange(ctx context.Context, cmds []redis.Cmder) (answered int, err error) {
	var request []byte
	for _, cmd := range cmds {
		if request, err = appendCommand(request, cmd.Args()); err != nil {
			return 0, err
		}
	}
	conn, err := d.getConn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { d.putConn(conn, err) }()
	o := d.Client.Options()
	if err := conn.SetWriteDeadline(ioDeadline(ctx, o, o.WriteTimeout)); err != nil {
		return 0, err
	}
	if _, err := conn.Write(request); err != nil {
		return 0, err
	}
	if err := conn.SetReadDeadline(ioDeadline(ctx, o, o.ReadTimeout)); err != nil {
		return 0, err
	}
	for i, cmd := range cmds {
		r, err := conn.replies.reply()
		if err != nil {
			return i, err
		}
		setReply(cmd, r.raw)
	}
	return len(cmds), nil
}
