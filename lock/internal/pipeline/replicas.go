package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrNotReplicated says that too few replicas have acknowledged a command in time.
var ErrNotReplicated = errors.New("lock: not replicated")

// execDurable sends a batch with a WAIT behind it on the same connection: that tells how many replicas have what its own
// connection has written. (https://redis.io/docs/latest/commands/wait/)
func (p *Pipeline) execDurable(ctx context.Context, batch []*command) {
	cluster := p.router.cluster
	if cluster == nil {
		p.execAndWait(ctx, p.client.Pipeline(), batch)
		return
	}
	// A WAIT has no key: what sends a command to the node of its key must be done by hand.
	var here []*command
	for _, c := range batch {
		if c.addr == "" {
			here = append(here, c)
		}
	}
	if len(here) > 0 {
		p.execOnOwner(ctx, cluster, here)
	}
	for _, c := range batch {
		if c.addr != "" {
			p.execAt(ctx, c)
		}
	}
}

// execOnOwner sends a batch to the node that has the first one's slot, as far as the client knows.
func (p *Pipeline) execOnOwner(ctx context.Context, cluster *redis.ClusterClient, batch []*command) {
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

// execAt sends a command to the node that another one has named. The client knows that node a moment later, and one that
// has no slot so far not at all. So this is done by a client of its own, to which it is the whole Cluster.
func (p *Pipeline) execAt(ctx context.Context, c *command) {
	addr := withBrackets(c.addr)
	opt := *p.router.cluster.Options()
	opt.Addrs, opt.MinIdleConns, opt.RouteByLatency = []string{addr}, 0, false // a client appends to Addrs
	opt.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 1<<14 - 1, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
	there := redis.NewClusterClient(&opt)
	defer func() { _ = there.Close() }()
	master, err := there.MasterForKey(ctx, c.call.Key)
	if err != nil {
		c.err = err
		return
	}
	pipe := master.Pipeline()
	if c.asking {
		pipe.Do(ctx, "asking")
	}
	p.execAndWait(ctx, pipe, []*command{c})
}

// withBrackets returns host:port, in which a node writes an IPv6 address without brackets.
func withBrackets(addr string) string {
	i := max(strings.LastIndexByte(addr, ':'), 0)
	return net.JoinHostPort(strings.Trim(addr[:i], "[]"), strings.TrimPrefix(addr[i:], ":"))
}

// execAndWait sends a batch, and a WAIT, at the end of pipe.
func (p *Pipeline) execAndWait(ctx context.Context, pipe redis.Pipeliner, batch []*command) {
	wait := redis.NewIntCmd(ctx, "wait", p.config.Replicas, p.config.ReplicaTimeout.Milliseconds())
	p.execPipelined(ctx, pipe, batch, wait)
	acked := p.acknowledged(wait)
	for _, c := range batch {
		c.acked = acked
	}
}

// acknowledged returns an error unless as many replicas have answered a WAIT as have to.
func (p *Pipeline) acknowledged(wait *redis.IntCmd) error {
	switch n, err := wait.Result(); {
	case err != nil:
		// Not wrapped: the commands before it have arrived, whatever this says.
		return fmt.Errorf("%w: %v", ErrNotReplicated, err)
	case n < int64(p.config.Replicas):
		return fmt.Errorf("%w: %d of %d have it", ErrNotReplicated, n, p.config.Replicas)
	}
	return nil
}
