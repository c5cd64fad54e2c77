package lock

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// write sends one command once, and with [WithReplicas] a WAIT behind it on the same connection. acked is nil if what
// the command wrote, if anything, has reached them.
func (l *Locker) write(ctx context.Context, key string, args ...any) (r reply, acked, err error) {
	if l.replicas == 0 {
		r, err = l.send(ctx, args...)
		return r, nil, err
	}
	cluster, ok := l.client.(*redis.ClusterClient)
	if !ok {
		return l.writeAndWait(ctx, l.client.Pipeline(), args)
	}
	// A WAIT has no key: what sends a command to the node of its key must be done by hand.
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return reply{}, nil, err
	}
	r, acked, err = l.writeAndWait(ctx, node.Pipeline(), args)
	if addr, moved := redis.IsMovedError(err); moved {
		cluster.ReloadState(ctx)
		return l.writeElsewhere(ctx, cluster, addr, key, args)
	}
	if addr, ask := redis.IsAskError(err); ask {
		return l.writeElsewhere(ctx, cluster, addr, key, args, "asking")
	}
	return r, acked, err
}

// writeElsewhere sends a command to the node that another one has named. The client knows that node a moment later, and
// one that has no slot so far not at all. So this is done by a client of its own, to which it is the whole cluster.
func (l *Locker) writeElsewhere(
	ctx context.Context, cluster *redis.ClusterClient, addr, key string, args []any, before ...any,
) (r reply, acked, err error) {
	opt := *cluster.Options()
	opt.MinIdleConns, opt.RouteByLatency = 0, false
	opt.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 1<<14 - 1, Nodes: []redis.ClusterNode{{Addr: withBrackets(addr)}}}}, nil
	}
	elsewhere := redis.NewClusterClient(&opt)
	defer func() { _ = elsewhere.Close() }()
	node, err := elsewhere.MasterForKey(ctx, key)
	if err != nil {
		return reply{}, nil, err
	}
	pipe := node.Pipeline()
	if len(before) > 0 {
		pipe.Do(ctx, before...)
	}
	return l.writeAndWait(ctx, pipe, args)
}

// withBrackets returns host:port, in which a node writes an IPv6 address without brackets.
func withBrackets(addr string) string {
	i := max(strings.LastIndexByte(addr, ':'), 0)
	return net.JoinHostPort(strings.Trim(addr[:i], "[]"), strings.TrimPrefix(addr[i:], ":"))
}

// writeAndWait sends a command, and WAIT behind it, at the end of pipe. (https://redis.io/docs/latest/commands/wait/)
func (l *Locker) writeAndWait(ctx context.Context, pipe redis.Pipeliner, args []any) (r reply, acked, err error) {
	cmd := newOnce(ctx, args...)
	wait := redis.NewIntCmd(ctx, "wait", l.replicas, l.replicaTimeout.Milliseconds())
	_ = pipe.Process(ctx, cmd)
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx) // the commands have their errors
	if r, err = cmd.reply(); err != nil {
		return r, nil, err
	}
	switch n, err := wait.Result(); {
	case err != nil:
		// Not wrapped: the command has arrived, whatever this says.
		return r, fmt.Errorf("%w: %v", ErrNotReplicated, err), nil
	case n < int64(l.replicas):
		return r, fmt.Errorf("%w: %d of %d have it", ErrNotReplicated, n, l.replicas), nil
	}
	return r, nil, nil
}

// confirm returns whether a claim that was granted is on the replicas.
func (l *Locker) confirm(ctx context.Context, storageKey string, c claimText, r reply, acked error) error {
	switch {
	case r.absent:
		return acked
	case l.replicas == 0 || !c.isOurs(r.text):
		return nil
	}
	// An earlier try has written it, whose reply was lost. WAIT must stand behind a write on its own connection.
	r, acked, err := l.writeExtension(ctx, storageKey, c.head, l.ttl)
	switch {
	case err != nil:
		return err
	case r.standing(c.token) != claimed:
		return ErrLost
	}
	return acked
}
