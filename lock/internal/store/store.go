// Package store defines the format of what a key in Redis holds, the commands and scripts that act on a key, and the
// meaning of their replies. Packages lock and lease call it. Its only state, and its only goroutines, are those of the
// claims that it releases because no run needs them (releases.go).
//
// One key holds the whole life of an operation: nothing, then a claim, then a value. [Store.Claim] takes a key or
// returns the [Entry] that it holds. The other methods act on a claim, named by its token, and return an [Outcome]:
// whose the key was when the command ran.
package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
)

// Config holds the settings of a Store.
type Config struct {
	Namespace  Namespace
	TTL        time.Duration // of a claim that is not renewed
	Fencing    bool          // every claim gets a fence
	Replicated bool          // writes must reach replicas: see pipeline.Config
}

// Store acts on the keys of one namespace on one deployment. Its methods may be called concurrently.
type Store struct {
	pipeline *pipeline.Pipeline
	group    *background.Group
	config   Config
	releases releases
	ttl      any // config.TTL in milliseconds, as an argument of a command
	publish  any // the name of the command that publishes, as an argument of a script
}

// New returns a Store that sends its commands through p. The client only shows whether it is a Cluster's.
func New(client redis.UniversalClient, p *pipeline.Pipeline, group *background.Group, config Config) *Store {
	s := &Store{pipeline: p, group: group, config: config, ttl: config.TTL.Milliseconds(), publish: "publish"}
	s.releases = releases{store: s, wake: make(chan struct{}, 1), claims: map[*unneeded]struct{}{}}
	if _, ok := client.(*redis.ClusterClient); ok {
		s.publish = "spublish" // PUBLISH would reach every node
	}
	return s
}

// Stats returns the counts of the commands that were sent.
func (s *Store) Stats() pipeline.Stats { return s.pipeline.Stats() }

// op is one operation on a key, and all that it needs in one allocation.
type op struct {
	pipeline.Call
	store *Store
	key   Key // Call.Key is its Text
	token uuid.UUID
	hold  time.Duration // of the claim to write; 0 without one

	claim    pipeline.Bytes     // the claim to write; only its head if the claim is there already
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

// actOn returns an operation on the claim of a token.
func (s *Store) actOn(ctx context.Context, key Key, token uuid.UUID) *op {
	o := s.newOp(ctx, key)
	o.token = token
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
	Another                    // the key held somebody else's claim or value, or a foreign one
)

// Outcome is the result of an operation on a claim.
type Outcome struct {
	Holder  Holder // 0 with an Err
	Err     error  // no reply arrived, or the server answered with an error
	Unsure  bool   // the server may have executed a try whose reply did not arrive
	Foreign bool   // Err is the server's: the key holds another type
}

// Wrap returns Err with the name of the operation, and nil without an Err.
func (o Outcome) Wrap(operation string) error { return wrap(operation, o.Err) }

func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock: %s: %w", operation, err)
}

// outcome returns r as an Outcome for the lease with that token.
func outcome(r pipeline.Result, token uuid.UUID) Outcome {
	o := Outcome{Err: r.Err, Unsure: r.Unsure, Foreign: r.Foreign}
	if r.Err == nil {
		o.Holder = holderOf(r.Reply, token)
	}
	return o
}

// holderOf returns who had the key, by the head that a script has returned.
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

// Extend extends the lease to at least d from now, and the key to d and the claim's hold. It never shortens either.
func (s *Store) Extend(ctx context.Context, key Key, token uuid.UUID, d time.Duration) Outcome {
	o := s.actOn(ctx, key, token)
	return outcome(o.Do(func() (*pipeline.Reply, error) {
		r, waitErr, err := o.extend(d)
		if err == nil && holderOf(r, token) == Ours {
			err = waitErr
		}
		return r, err
	}), token)
}

// extend sends extend.lua for the claim of o. Under WithReplicas the script always writes, so that a WAIT counts it.
func (o *op) extend(d time.Duration) (r *pipeline.Reply, waitErr, err error) {
	mode := ""
	if o.store.config.Replicated {
		mode = "write"
	}
	return o.EvalDurable(extendScript, 1, o.key.arg, arg(o.claim[:headLen]), d.Milliseconds(), mode)
}

// Settle replaces the claim with a value, which begins with what NewValue returned, and also writes it under an absent
// key.
func (s *Store) Settle(ctx context.Context, key Key, token uuid.UUID, value []byte, ttl time.Duration) Outcome {
	o := s.actOn(ctx, key, token)
	o.MayInline = true
	o.value, o.valueTTL = value, strconv.AppendInt(o.room[headLen:headLen], ttl.Milliseconds(), 10)
	return outcome(o.Do(func() (*pipeline.Reply, error) {
		r, waitErr, err := o.EvalDurable(settleScript, 1, o.key.arg, &o.claim, &o.value, &o.valueTTL, s.publish)
		if err != nil {
			return nil, err
		}
		if holderOf(r, token) != Another { // the script has written
			err = waitErr
		}
		return r, err
	}), token)
}

// Release removes the claim. A worker sends the command.
func (s *Store) Release(ctx context.Context, key Key, token uuid.UUID) Outcome {
	return s.actOn(ctx, key, token).release(false)
}

// ReleaseInline is Release, except that the caller's goroutine may send the command. If the claim is held, the release
// must reach replicas: after a failover the claim would be back, and stay for its hold.
func (s *Store) ReleaseInline(ctx context.Context, key Key, token uuid.UUID, held bool) Outcome {
	o := s.actOn(ctx, key, token)
	o.MayInline = true
	return o.release(held)
}

// release sends release.lua for the claim of o. If the claim is held, under WithReplicas the script writes also if the
// key is absent, so that a WAIT counts a release whose reply was lost.
func (o *op) release(held bool) Outcome {
	return outcome(o.Do(func() (*pipeline.Reply, error) {
		if !held || !o.store.config.Replicated {
			return o.Eval(releaseScript, 1, o.key.arg, &o.claim, o.store.publish)
		}
		r, waitErr, err := o.EvalDurable(releaseScript, 1, o.key.arg, &o.claim, o.store.publish, "write")
		if err == nil && (r.Absent || holderOf(r, o.token) == Ours) {
			err = waitErr
		}
		return r, err
	}), o.token)
}
