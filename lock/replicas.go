package lock

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// carryReplicated sends a batch with a WAIT behind it on the same connection: that tells how many replicas have what
// its own connection has written. (https://redis.io/docs/latest/commands/wait/)
func (l *Locker) carryReplicated(ctx context.Context, batch []*command) {
	cluster := l.routes.cluster
	if cluster == nil {
		l.pipeAndWait(ctx, l.client.Pipeline(), batch)
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
		l.carryHere(ctx, cluster, here)
	}
	for _, c := range batch {
		if c.addr != "" {
			l.carryElsewhere(ctx, c)
		}
	}
}

// carryHere sends a batch to the node that has the first one's slot, as far as the client knows.
func (l *Locker) carryHere(ctx context.Context, cluster *redis.ClusterClient, batch []*command) {
	node, err := cluster.MasterForKey(ctx, batch[0].trip.key.text)
	if err != nil {
		for _, c := range batch {
			c.err = err
		}
		return
	}
	l.pipeAndWait(ctx, node.Pipeline(), batch)
	for _, c := range batch {
		if _, moved := redis.IsMovedError(c.err); moved {
			cluster.ReloadState(ctx)
			return
		}
	}
}

// carryElsewhere sends a command to the node that another one has named. The client knows that node a moment later, and
// one that has no slot so far not at all. So this is done by a client of its own, to which it is the whole cluster.
func (l *Locker) carryElsewhere(ctx context.Context, c *command) {
	addr := withBrackets(c.addr)
	opt := *l.routes.cluster.Options()
	opt.Addrs, opt.MinIdleConns, opt.RouteByLatency = []string{addr}, 0, false // a client appends to Addrs
	opt.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 1<<14 - 1, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
	elsewhere := redis.NewClusterClient(&opt)
	defer func() { _ = elsewhere.Close() }()
	node, err := elsewhere.MasterForKey(ctx, c.trip.key.text)
	if err != nil {
		c.err = err
		return
	}
	pipe := node.Pipeline()
	if c.asking {
		pipe.Do(ctx, "asking")
	}
	l.pipeAndWait(ctx, pipe, []*command{c})
}

// withBrackets returns host:port, in which a node writes an IPv6 address without brackets.
func withBrackets(addr string) string {
	i := max(strings.LastIndexByte(addr, ':'), 0)
	return net.JoinHostPort(strings.Trim(addr[:i], "[]"), strings.TrimPrefix(addr[i:], ":"))
}

// pipeAndWait sends a batch, and a WAIT, at the end of pipe.
func (l *Locker) pipeAndWait(ctx context.Context, pipe redis.Pipeliner, batch []*command) {
	wait := redis.NewIntCmd(ctx, "wait", l.replicas, l.replicaTimeout.Milliseconds())
	l.pipe(ctx, pipe, batch, wait)
	acked := l.enough(wait)
	for _, c := range batch {
		c.acked = acked
	}
}

// enough tells whether as many replicas have answered a WAIT as there are to be.
func (l *Locker) enough(wait *redis.IntCmd) error {
	switch n, err := wait.Result(); {
	case err != nil:
		// Not wrapped: the commands before it have arrived, whatever this says.
		return fmt.Errorf("%w: %v", ErrNotReplicated, err)
	case n < int64(l.replicas):
		return fmt.Errorf("%w: %d of %d have it", ErrNotReplicated, n, l.replicas)
	}
	return nil
}

// confirm returns whether a claim that was granted is on the replicas.
func (t *trip) confirm(r reply, acked error) error {
	switch {
	case r.absent:
		return acked
	case t.locker.replicas == 0 || !t.claim.isOurs(r.text):
		return nil
	}
	// An earlier try has written it, whose reply was lost. WAIT must stand behind a write on its own connection.
	r, acked, err := t.writeExtension(t.locker.ttl)
	switch {
	case err != nil:
		return err
	case r.standing(t.claim.token) != claimed:
		return ErrLost
	}
	return acked
}

// confirmValue returns whether the value with that head is on the replicas, whoever wrote it.
func (t *trip) confirmValue(head []byte) error {
	again := t.locker.newTrip(t.ctx, t.key)
	again.start = t.start
	a := again.ask(func(t *trip) (reply, error) {
		r, acked, err := t.evalWrite(confirmScript, 1, t.key.arg, part(head))
		if err == nil && !bytes.Equal(r.text, head) {
			err = errChanged
		}
		if err == nil {
			err = acked
		}
		return r, err
	})
	return a.err
}

// errChanged says that a value that was met was not there any more when it was to be confirmed.
var errChanged = fmt.Errorf("%w: the value has changed meanwhile", ErrNotReplicated)
