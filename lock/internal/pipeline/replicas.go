package pipeline

// Batches of durable commands are followed by a WAIT: exec calls execDurable for them.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrNotReplicated is the error of a durable write that too few replicas have acknowledged in time.
var ErrNotReplicated = errors.New("lock: not replicated")

// execDurable sends a batch followed by a WAIT on the same connection: WAIT returns how many replicas have what its own
// connection has written. (https://redis.io/docs/latest/commands/wait/)
func (p *Pipeline) execDurable(ctx context.Context, batch []*command) {
	// A ClusterClient cannot route a WAIT, which has no key. So the commands and the WAIT are sent to one node.
	switch cluster := p.router.cluster; {
	case cluster == nil:
		p.execAndWait(ctx, p.client.Pipeline(), batch)
	case batch[0].addr != "":
		p.execAt(ctx, batch[0])
	default:
		p.execOnMaster(ctx, cluster, batch)
	}
}

// execOnMaster sends a batch to the node that, as far as the client knows, has the slot of the first command's key.
func (p *Pipeline) execOnMaster(ctx context.Context, cluster *redis.ClusterClient, batch []*command) {
	master, err := cluster.MasterForKey(ctx, batch[0].call.Key)
	if err != nil {
		for _, c := range batch {
			c.err = err
		}
		return
	}
	p.execAndWait(ctx, master.Pipeline(), batch)
	for _, c := range batch {
		if _, moved := redis.IsMovedError(c.err); moved {
			cluster.ReloadState(ctx)
			return
		}
	}
}

// execAt sends a command to the node that a redirection has named. The client may not know that node: it may be new, or
// have no slot. So execAt makes a client to which that node is the whole Cluster.
func (p *Pipeline) execAt(ctx context.Context, c *command) {
	addr := withBrackets(c.addr)
	opt := *p.router.cluster.Options()
	opt.Addrs, opt.MinIdleConns, opt.RouteByLatency = []string{addr}, 0, false // a client appends to Addrs
	opt.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 1<<14 - 1, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
	target := redis.NewClusterClient(&opt)
	defer func() { _ = target.Close() }()
	master, err := target.MasterForKey(ctx, c.call.Key)
	if err != nil {
		c.err = err
		return
	}
	pipe := master.Pipeline()
	pipe.Do(ctx, "asking") // for ASK; after MOVED it changes nothing
	p.execAndWait(ctx, pipe, []*command{c})
}

// withBrackets returns addr, which is host:port, with brackets around an IPv6 host: Redis sends none.
func withBrackets(addr string) string {
	i := max(strings.LastIndexByte(addr, ':'), 0)
	return net.JoinHostPort(strings.Trim(addr[:i], "[]"), strings.TrimPrefix(addr[i:], ":"))
}

// execAndWait adds a batch and a WAIT to pipe, and sends the pipe.
func (p *Pipeline) execAndWait(ctx context.Context, pipe redis.Pipeliner, batch []*command) {
	wait := redis.NewIntCmd(ctx, "wait", p.config.Replicas, p.config.ReplicaTimeout.Milliseconds())
	p.execPipelined(ctx, pipe, batch, wait)
	waitErr := p.waitError(wait)
	for _, c := range batch {
		c.reply.WaitErr = waitErr
	}
}

// waitError returns nil if, by the reply to a WAIT, enough replicas have acknowledged, and otherwise ErrNotReplicated.
func (p *Pipeline) waitError(wait *redis.IntCmd) error {
	switch n, err := wait.Result(); {
	case err != nil:
		// err is not wrapped: it is about WAIT alone, and the commands before it may have been executed.
		return fmt.Errorf("%w: %v", ErrNotReplicated, err)
	case n < int64(p.config.Replicas):
		return fmt.Errorf("%w: %d of %d have it", ErrNotReplicated, n, p.config.Replicas)
	}
	return nil
}
