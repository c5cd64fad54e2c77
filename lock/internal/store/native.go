package store

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// Newer servers compare and write in one native command, in less time than a script takes: SET with IFEQ (Redis 8.4,
// Valkey 8.1), and DELEX (Redis 8.4) or DELIFEQ (Valkey 9.0). Settle and Release send it first if the server is known to
// have it, and they know the whole claim (Entry.Written). It changes nothing if the key holds other bytes. Then the script
// follows, which knows what to do about a waiter's mark, an absent key, our own value and another caller's. Under
// WithReplicas only scripts are sent.

// natives are the native commands that FindNatives has found, and that the server has not refused since.
type natives struct{ setIfEq, delEx, delIfEq atomic.Bool }

// FindNatives finds out which native commands the server has. key must be absent, so that they write nothing. In a Cluster
// DELEX and DELIFEQ are not used: go-redis does not know where in them the key is.
func (s *Store) FindNatives(ctx context.Context, key Key) error {
	n := &s.natives
	err := s.find(ctx, key, &n.setIfEq, "set", key.arg, "", "ifeq", "", "px", 1)
	if err == nil && !s.isCluster {
		err = s.find(ctx, key, &n.delEx, "delex", key.arg, "ifeq", "")
	}
	if err == nil && !s.isCluster && !n.delEx.Load() {
		err = s.find(ctx, key, &n.delIfEq, "delifeq", key.arg, "")
	}
	return wrap("find native commands", err)
}

// find sends a native command, and sets has to whether the server has it.
func (s *Store) find(ctx context.Context, key Key, has *atomic.Bool, args ...any) error {
	o := s.newOp(ctx, key)
	r := o.Do(func() (*pipeline.Reply, error) { return o.Send(args...) })
	has.Store(r.Err == nil)
	if r.Err != nil && !isRefused(r.Err) {
		return r.Err
	}
	return nil
}

// isRefused reports whether err means that the server does not know the command, or that its ACL forbids it.
func isRefused(err error) bool {
	return redis.HasErrorPrefix(err, "syntax error") || redis.HasErrorPrefix(err, "unknown command") ||
		redis.HasErrorPrefix(err, "NOPERM")
}

// swap replaces the claim with the value. Its results are those of native.
func (o *op) swap() (*pipeline.Reply, error) {
	return o.native(&o.store.natives.setIfEq, "set", o.key.arg, &o.value, "ifeq", &o.written, "px", &o.valueTTL)
}

// delete deletes the claim. Its results are those of native.
func (o *op) delete() (*pipeline.Reply, error) {
	if n := &o.store.natives; !n.delEx.Load() {
		return o.native(&n.delIfEq, "delifeq", o.key.arg, &o.written)
	}
	return o.native(&o.store.natives.delEx, "delex", o.key.arg, "ifeq", &o.written)
}

// native sends a native command if the server has it. It returns the head of our claim, as the script does, if the key
// held the claim. It returns nil if the script has to follow.
func (o *op) native(has *atomic.Bool, args ...any) (*pipeline.Reply, error) {
	if o.written == nil || o.store.config.replicated() || !has.Load() {
		return nil, nil
	}
	r, err := o.Send(args...)
	switch {
	case err != nil && isRefused(err): // a failover has reached an older server
		has.Store(false)
		return nil, nil
	case err != nil:
		return nil, err
	case r.Absent || string(r.Text) == "0":
		return nil, nil
	}
	r.Text = o.claim
	return r, nil
}
