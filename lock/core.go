package lock

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// core is what a Locker and a Quorum have in common.
type core struct {
	namespace store.Namespace
	options   options
	group     *background.Group
	workers   *pipeline.Workers
	leases    lease.Config
	timers    lease.Timers
	backlog   lease.Backlog
}

// newCore returns what the function called constructor was asked for. It panics in its name.
func newCore(constructor, namespace string, opts []Option) *core {
	if namespace == "" || strings.ContainsAny(namespace, "{}") {
		panic(constructor + ": namespace must be a text without braces, and not empty")
	}
	o := defaultOptions()
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("%s: option %d is nil", constructor, i+1))
		}
		opt(&o)
	}
	o.check()
	c := &core{
		namespace: store.Namespace(namespace), options: o, group: background.NewGroup(), workers: pipeline.NewWorkers(),
	}
	c.leases = lease.Config{
		TTL: o.ttl, OpTimeout: o.opTimeout, Renew: o.renew, Group: c.group, Timers: &c.timers, Backlog: &c.backlog,
	}
	return c
}

// checkClient panics on a client that no Locker may stand on.
func checkClient(constructor string, client redis.UniversalClient) {
	if client == nil {
		panic(constructor + ": client is nil")
	}
	if _, ok := client.(*redis.Ring); ok {
		panic(constructor + ": client is a *redis.Ring, which moves keys between servers")
	}
}

// newStore returns the store of one deployment.
func (c *core) newStore(client redis.UniversalClient) *store.Store {
	o := c.options
	p := pipeline.New(client, c.group, c.workers, pipeline.Config{
		OpTimeout: o.opTimeout, Replicas: o.replicas, ReplicaTimeout: o.replicaTimeout,
	})
	return store.New(client, p, c.group, store.Config{
		Namespace: c.namespace, TTL: o.ttl, Fencing: o.fencing, Replicas: o.replicas > 0,
	})
}

// close is described at [Locker.Close].
func (c *core) close(ctx context.Context) error {
	c.workers.Close()
	return c.group.Close(ctx)
}

// ready returns why nothing can be asked for, if so.
func (c *core) ready(ctx context.Context, doing string) error {
	if c.group.Closed() {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return fmt.Errorf("lock: %s: %w", doing, context.Cause(ctx))
	}
	return nil
}
