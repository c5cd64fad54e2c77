// Package store knows what a key in Redis holds: its format, the commands and scripts that act on it, and what their
// replies mean. It keeps no state of its own, and no goroutine but for what a lost reply leaves to be undone.
//
// One key holds the whole life of an operation: nothing, then a claim, then a value. [Store.Claim] takes a key or returns
// the [Entry] that is there. The others act on a claim, which they know by its token, and return an [Outcome]: whose the
// key was when the script looked at it.
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

// Config is what a Store is to keep to.
type Config struct {
	Namespace Namespace
	TTL       time.Duration // of a claim that nobody renews
	Fencing   bool          // claims are numbered
	Replicas  bool          // what is written has to be on replicas: see pipeline.Config
}

// Store has the keys of one namespace on one deployment. Its methods may be called concurrently.
type Store struct {
	pipeline *pipeline.Pipeline
	group    *background.Group
	config   Config
	ttl      any // in milliseconds, as an argument
	publish  any // the command by which the scripts publish
}

// New returns a Store on a client whose commands go through p.
func New(client redis.UniversalClient, p *pipeline.Pipeline, group *background.Group, config Config) *Store {
	s := &Store{pipeline: p, group: group, config: config, ttl: config.TTL.Milliseconds(), publish: "publish"}
	if _, ok := client.(*redis.ClusterClient); ok {
		s.publish = "spublish" // to the node of the key alone
	}
	return s
}

// op is one operation on a key. It is one allocation, with room for what most operations send.
type op struct {
	pipeline.Call
	store *Store
	key   Key
	token uuid.UUID
	late  func(Attempt) // of TryClaim

	claim  pipeline.Bytes // to be written, or the head of one to act on
	stored pipeline.Bytes // the value to be left behind
	ttl    pipeline.Bytes // for that long, in milliseconds
	room   [notePos + 64]byte
}

func (s *Store) newOp(ctx context.Context, key Key) *op {
	o := &op{store: s, key: key}
	o.Pipeline, o.Context, o.Key = s.pipeline, ctx, key.Text
	return o
}

// actOn returns an operation on the claim with the token.
func (s *Store) actOn(ctx context.Context, key Key, token uuid.UUID) *op {
	o := s.newOp(ctx, key)
	o.token = token
	o.claim = appendHead(o.room[:0], claimMagic, token)
	return o
}

// Holder is whose a key was when a script looked at it.
type Holder int

// The holders of a key, as seen by a lease.
const (
	Ours     Holder = iota + 1 // the key held the lease's claim
	Nobody                     // the key did not exist
	OurValue                   // the key held the value that the lease settled
	OurOther                   // Settle only: the key held another value that the lease settled
	Another                    // the key held somebody else's claim or value, or a foreign one
)

// Outcome is the result of an operation on a claim.
type Outcome struct {
	Holder  Holder // 0 with an Err
	Err     error  // Redis has not answered, or with an error
	Unsure  bool   // some try may have been executed although its reply did not arrive
	Foreign bool   // Err says that the key holds another type
}

// Wrap returns the Err with what was tried, nil without one.
func (o Outcome) Wrap(doing string) error { return wrap(doing, o.Err) }

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock: %s: %w", doing, err)
}

func outcome(r pipeline.Result, token uuid.UUID) Outcome {
	o := Outcome{Err: r.Err, Unsure: r.Unsure, Foreign: r.Foreign}
	if r.Err == nil {
		o.Holder = holder(r.Reply, token)
	}
	return o
}

// settledBefore is what settle.lua returns when the lease has left another value.
const settledBefore = "another Settle of this lease was first"

// holder returns whose the key was by the head that a script has found there.
func holder(r pipeline.Reply, token uuid.UUID) Holder {
	switch {
	case r.Absent:
		return Nobody
	case len(r.Text) == headLen && hasHead(r.Text, claimMagic, token):
		return Ours
	case len(r.Text) == headLen && hasHead(r.Text, valueMagic, token):
		return OurValue
	case string(r.Text) == settledBefore:
		return OurOther
	}
	return Another
}

// Extend lets the claim last for at least d from now, and the key for the hold behind it. It never shortens it.
func (s *Store) Extend(ctx context.Context, key Key, token uuid.UUID, d time.Duration) Outcome {
	o := s.actOn(ctx, key, token)
	return outcome(o.Do(func() (pipeline.Reply, error) {
		r, acked, err := o.extend(d)
		if err == nil && holder(r, token) == Ours {
			err = acked
		}
		return r, err
	}), token)
}

func (o *op) extend(d time.Duration) (r pipeline.Reply, acked, err error) {
	how := ""
	if o.store.config.Replicas {
		how = "write"
	}
	return o.EvalDurable(extendScript, 1, o.key.arg, arg(o.claim[:headLen]), d.Milliseconds(), how)
}

// Hold lets the key last for hold behind the lease, unless less than least is left of that.
func (s *Store) Hold(ctx context.Context, key Key, token uuid.UUID, hold, lease, least time.Duration) Outcome {
	o := s.actOn(ctx, key, token)
	return outcome(o.Do(func() (pipeline.Reply, error) {
		r, acked, err := o.EvalDurable(holdScript, 1, o.key.arg, &o.claim, encodeHold(hold),
			hold.Milliseconds(), lease.Milliseconds(), least.Milliseconds())
		if err == nil && holder(r, token) == Ours {
			err = acked
		}
		return r, err
	}), token)
}

// Settle puts a value, which begins with what NewValue returned, in the place of the claim, or where there is nothing.
func (s *Store) Settle(ctx context.Context, key Key, token uuid.UUID, value []byte, ttl time.Duration) Outcome {
	o := s.actOn(ctx, key, token)
	o.MayInline = true
	o.stored, o.ttl = value, strconv.AppendInt(o.room[headLen:headLen], ttl.Milliseconds(), 10)
	return outcome(o.Do(func() (pipeline.Reply, error) {
		r, acked, err := o.EvalDurable(settleScript, 1, o.key.arg, &o.claim, &o.stored, &o.ttl, s.publish)
		if h := holder(r, token); err == nil && h != Another && h != OurOther {
			err = acked
		}
		return r, err
	}), token)
}

// Release removes the claim.
func (s *Store) Release(ctx context.Context, key Key, token uuid.UUID) Outcome {
	return s.release(s.actOn(ctx, key, token))
}

// ReleaseInline is Release for a caller that may send the command itself.
func (s *Store) ReleaseInline(ctx context.Context, key Key, token uuid.UUID) Outcome {
	o := s.actOn(ctx, key, token)
	o.MayInline = true
	return s.release(o)
}

func (s *Store) release(o *op) Outcome {
	return outcome(o.Do(func() (pipeline.Reply, error) {
		return o.Eval(releaseScript, 1, o.key.arg, &o.claim, s.publish)
	}), o.token)
}

// Forget removes whatever the key holds.
func (s *Store) Forget(ctx context.Context, key Key) error {
	o := s.newOp(ctx, key)
	r := o.Do(func() (pipeline.Reply, error) { return o.Eval(forgetScript, 1, o.key.arg, s.publish) })
	return wrap("forget", r.Err)
}
