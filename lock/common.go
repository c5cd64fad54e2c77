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

// common is what a Locker and a Quorum have in common.
type common struct {
	namespace store.Namespace
	options   options
	group     *background.Group // of all goroutines that outlive a call
	workers   *pipeline.Workers
	leases    lease.Config // of all leases
	timers    lease.Timers
	backlog   lease.Backlog
}

// newCommon makes the common part of a Locker or Quorum. It panics, with the name of the constructor, on a wrong
// namespace or option.
func newCommon(constructor, namespace string, opts []Option) *common {
	if namespace == "" || strings.ContainsAny(namespace, "{}") {
		panic(constructor + ": namespace must be a text that is not empty and has no braces")
	}
	o := defaultOptions()
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("%s: option %d is nil", constructor, i+1))
		}
		opt(&o)
	}
	o.check()
	c := &common{
		namespace: store.Namespace(namespace), options: o, group: background.NewGroup(o.base), workers: pipeline.NewWorkers(),
	}
	c.leases = lease.Config{
		TTL: o.ttl, OpTimeout: o.opTimeout, Renew: o.renew, Group: c.group, Timers: &c.timers, Backlog: &c.backlog,
	}
	return c
}

// checkClient panics if client is nil or a *redis.Ring.
func checkClient(constructor string, client redis.UniversalClient) {
	if client == nil {
		panic(constructor + ": client is nil")
	}
	if _, ok := client.(*redis.Ring); ok {
		panic(constructor + ": client is a *redis.Ring, which moves keys between servers")
	}
}

// newStore returns the store of the deployment of client.
func (c *common) newStore(client redis.UniversalClient) *store.Store {
	o := c.options
	p := pipeline.New(client, c.group, c.workers, pipeline.Config{
		OpTimeout: o.opTimeout, Replicas: o.replicas, ReplicaTimeout: o.replicaTimeout,
	})
	return store.New(client, p, c.group, store.Config{
		Namespace: c.namespace, TTL: o.ttl, Fencing: o.fencing, Replicated: o.replicas > 0,
	})
}

// close implements Locker.Close and Quorum.Close.
func (c *common) close(ctx context.Context) error {
	c.workers.Close()
	return c.group.Close(ctx)
}

// ready returns an error if the Locker or Quorum is closed or ctx is done.
func (c *common) ready(ctx context.Context, operation string) error {
	if c.group.Closed() {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return fmt.Errorf("lock: %s: %w", operation, context.Cause(ctx))
	}
	return nil
}

// withTimeout calls f, and returns within the time for one operation even if go-redis ignores the context.
func (c *common) withTimeout(ctx context.Context, f func(context.Context) error) error {
	limit := c.options.opTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, background.TimeoutError(limit))
	defer cancel() // not in the goroutine: then ctx could be done before the result of f is read
	done := make(chan error, 1)
	c.group.Go(func() { done <- f(ctx) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
