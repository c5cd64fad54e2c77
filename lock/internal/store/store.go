// Package store defines the format of what a key in Redis holds, the commands and scripts that act on a key, and the
// meaning of their replies. Packages lock and lease call it. Its only state, and its only goroutines, are those of the
// claims that it releases because no run needs them (unneeded.go).
//
// One key holds the whole life of an operation: nothing, then a claim, then a value. [Store.Claim] takes a key or
// returns the [Entry] that it holds. Extend, Settle and Release act on a claim, named by its token, and return a
// [Found]: who had the key when the command ran.
package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// Config holds the settings of a Store.
type Config struct {
	pipeline.Config
	Namespace Namespace
	TTL       time.Duration // of a claim that is not renewed
	Fencing   bool          // every claim has a fence
}

// replicated reports whether writes must reach replicas.
func (c *Config) replicated() bool { return c.Replicas > 0 }

// Store acts on the keys of one namespace on one deployment. Its methods may be called concurrently.
type Store struct {
	pipeline  *pipeline.Pipeline
	group     *background.Group
	config    Config
	releases  releases
	isCluster bool
	ttl       any // config.TTL in milliseconds, as an argument of a command
	natives   natives
	publish   any // the name of the command that publishes, as an argument of a script
}

// New returns a Store on a client, which it does not close. group counts work that outlives a call.
func New(client redis.UniversalClient, group *background.Group, config Config) *Store {
	s := &Store{group: group, config: config, ttl: config.TTL.Milliseconds(), publish: "publish"}
	s.pipeline = pipeline.New(client, group, config.Config)
	s.releases = releases{store: s, wake: make(chan struct{}, 1), claims: map[*Unneeded]struct{}{}, kinds: map[bool]int{}}
	if _, s.isCluster = client.(*redis.ClusterClient); s.isCluster {
		s.publish = "spublish" // PUBLISH would reach every node
	}
	return s
}

// Stats returns the counts of the commands that were sent.
func (s *Store) Stats() pipeline.Stats { return s.pipeline.Stats() }

// Node returns what identifies the server that has the key now, as far as is known. It sends nothing.
func (s *Store) Node(key Key) any { return s.pipeline.Node(key.Text) }

// op is one operation on a key, with all that it needs in one allocation.
type op struct {
	pipeline.Call
	store *Store
	key   Key           // Call.Key is its Text
	token uuid.UUID     // of the claim to write
	hold  time.Duration // of the claim to write; 0 without one
	mark  string        // see markFor

	mayReturn bool // of Claim: see Entry
	arrived   bool // of Claim: a reply has shown that the key held our claim; never cleared

	claim    pipeline.Bytes     // the claim to write; only its head if the claim is there already
	written  pipeline.Bytes     // of Settle and Release: the whole claim; nil if it is not known
	value    pipeline.Bytes     // of Settle, with its head
	valueTTL pipeline.Bytes     // of Settle: milliseconds, in decimal digits
	room     [notePos + 48]byte // the memory of claim if the note has at most 48 bytes, and of valueTTL
}

// newOp returns an operation on key.
func (s *Store) newOp(ctx context.Context, key Key) *op {
	o := &op{store: s, key: key}
	o.Pipeline, o.Context, o.Key = s.pipeline, ctx, key.Text
	return o
}

// actOn returns an operation on the claim of a token under key.
func (s *Store) actOn(ctx context.Context, key Key, token uuid.UUID) *op {
	o := s.newOp(ctx, key)
	o.claim = appendHead(o.room[:0], claimMagic, token)
	return o
}

// Holder is who had a key when a command ran, seen from one lease.
type Holder int

// The holders of a key.
const (
	Ours     Holder = iota + 1 // the key held the lease's claim
	Nobody                     // the key was absent
	OurValue                   // the key held the value that the lease settled
	Another                    // the key held another lease's claim or value, or something foreign
)

// Found is what an operation on a claim has found.
type Found struct {
	Holder Holder // 0 with an Err
	Err    error  // no reply arrived, or the reply was an error; nil if the key holds another type
	Unsure bool   // the server may have executed a try whose reply did not arrive
}

// Wrap returns Err with the name of the operation, or nil if Err is nil.
func (f Found) Wrap(operation string) error { return wrap(operation, f.Err) }

func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock: %s: %w", operation, err)
}

// newFound returns r as a Found for the lease with that token.
func newFound(r pipeline.Result, token uuid.UUID) Found {
	switch {
	case r.Foreign:
		return Found{Holder: Another, Unsure: r.Unsure}
	case r.Err != nil:
		return Found{Err: r.Err, Unsure: r.Unsure}
	}
	return Found{Holder: holderOf(r.Reply, token), Unsure: r.Unsure}
}

// holderOf returns the holder of the key, from the head that a script has returned.
func holderOf(r *pipeline.Reply, token uuid.UUID) Holder {
	switch {
	case r.Absent:
		return Nobody
	case len(r.Text) == headLen && hasHead(r.Text, claimMagic, token):
		return Ours
	case len(r.Text) == headLen && hasHead(r.Text, valueMagic, token):
		return OurValue
	}
	return Another
}

// Extend extends the lease to at least d from now, and the key's expiry to d plus the claim's hold. It never shortens
// either, and writes nothing under an absent key: see extend.lua.
func (s *Store) Extend(ctx context.Context, key Key, token uuid.UUID, d time.Duration) Found {
	o := s.actOn(ctx, key, token)
	return newFound(o.Do(func() (*pipeline.Reply, error) {
		r, err := o.extend(d)
		if err == nil && holderOf(r, token) == Ours {
			err = r.WaitErr
		}
		return r, err
	}), token)
}

// extend sends extend.lua for the claim of o. Under WithReplicas the script always writes, so that a WAIT counts it.
func (o *op) extend(d time.Duration) (*pipeline.Reply, error) {
	mode := ""
	if o.store.config.replicated() {
		mode = "write"
	}
	return o.EvalDurable(extendScript, 1, o.key.arg, arg(o.claim[:headLen]), d.Milliseconds(), mode)
}

// Settle replaces the claim with a value, which begins with what NewValue returned. It also writes the value if the key
// is absent: see settle.lua. written is Entry.Written of the claim.
func (s *Store) Settle(
	ctx context.Context, key Key, token uuid.UUID, written, value []byte, ttl time.Duration,
) Found {
	o := s.actOn(ctx, key, token)
	o.value, o.valueTTL, o.written = value, strconv.AppendInt(o.room[headLen:headLen], ttl.Milliseconds(), 10), written
	return newFound(o.Do(func() (*pipeline.Reply, error) {
		if r, err := o.swap(); r != nil || err != nil {
			return r, err
		}
		r, err := o.EvalDurable(settleScript, 1, o.key.arg, &o.claim, &o.value, &o.valueTTL, s.publish)
		if err == nil && holderOf(r, token) != Another { // the script has written
			err = r.WaitErr
		}
		return r, err
	}), token)
}

// Release removes the claim. written is as for Settle. If the claim has a hold, the release must reach replicas: a
// failover could bring the claim back, for as long as its hold. Under WithReplicas the script then also writes if the key
// is absent, so that a WAIT counts a release whose reply was lost.
func (s *Store) Release(ctx context.Context, key Key, token uuid.UUID, written []byte, hasHold bool) Found {
	o := s.actOn(ctx, key, token)
	o.written = written
	return newFound(o.Do(func() (*pipeline.Reply, error) {
		if r, err := o.delete(); r != nil || err != nil {
			return r, err
		}
		if !hasHold || !s.config.replicated() {
			return o.Eval(releaseScript, 1, o.key.arg, &o.claim, s.publish)
		}
		r, err := o.EvalDurable(releaseScript, 1, o.key.arg, &o.claim, s.publish, "write")
		if err == nil && (r.Absent || holderOf(r, token) == Ours) {
			err = r.WaitErr
		}
		return r, err
	}), token)
}
