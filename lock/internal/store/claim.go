package store

// This file claims keys, and looks at them without claiming. Package lock calls Claim and Look. No mutex is held here.
//
// The reply to a claim may be lost or come too late. Six files deal with that, in the order in which a claim comes to
// them:
//
//  1. internal/pipeline/call.go: after an error that may pass (rediserr.IsTemporary), such as a broken connection,
//     Call.Do sends the claim again, with the same token. A reply that arrives after Do has returned goes to the
//     Call's Late.
//  2. internal/store/replicas.go: with WithReplicas, a claim that an earlier try has written is first confirmed
//     (confirmClaim), in the same try.
//  3. this file: if the key then holds this token (isOurs), the first command has arrived, and the claim is granted.
//     If another caller's claim or value is there instead, Claim returns it. If Do fails, Claim returns an error. After
//     each of these, a command without a reply may still arrive (Entry.MayReturn). If Do has failed because the caller
//     no longer waits, lateClaim releases the claim when its reply arrives after all.
//  4. lock/claim.go: if the claim is granted too late for its lease, granter.newLease releases it.
//  5. internal/lease/release.go: if a second command is granted, the first one may arrive after the lease was released,
//     or after the settled value has expired. Core.keepReleasing has it released again.
//  6. internal/store/unneeded.go: KeepReleasing releases a claim that no caller gets. The release is sent until Redis has
//     answered, and several times after that.
//
// A claim that arrives even later, or after its process has died, has no holder, and blocks the key until it expires.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// State is what a key holds. Package lock exports it.
type State int

const (
	Free      State = iota + 1 // nothing; Look and Inspect return it, Claim takes a free key
	Granted                    // our own claim
	Held                       // another caller's claim, with a hold or without; as far as is known, its lease has not run out
	Abandoned                  // another caller's claim, whose lease has run out and whose hold has not
	Settled                    // a value
)

// String returns the state's name in lower case.
func (s State) String() string {
	names := [...]string{Free: "free", Granted: "granted", Held: "held", Abandoned: "abandoned", Settled: "settled"}
	if s < Free || s > Settled {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return names[s]
}

// Entry is what a key holds.
type Entry struct {
	State   State
	Content []byte    // the note when Held or Abandoned, or the owner if IsLock; the value when Settled
	At      time.Time // when Held, Abandoned or Settled: when it was claimed or settled, by the clock of its writer
	Fence   int64     // of a claim; 0 without fencing

	// MayReturn is set by Claim: a command without a reply may still arrive, and write our claim, perhaps again. The claim
	// is then released repeatedly: Claim queues that if the claim was not granted, and otherwise package lease does when the
	// lease is released or settled.
	MayReturn bool

	IsLock bool // of a claim: TryAcquire or Acquire has written it

	// Written is the whole claim, when Granted by SET. It is nil when claim.lua has written the claim.
	Written []byte

	// Left is how long the State lasts without a renewal: until the lease ends or, when Abandoned, until the hold ends.
	// It is 0 if the command has not read the key's time to live.
	Left time.Duration
	hold time.Duration // of a claim; 0 without a hold
}

// ClaimOptions are the options of Claim.
type ClaimOptions struct {
	Note    []byte        // stored with the claim
	Hold    time.Duration // for which the claim stays after its lease
	Waits   bool          // the caller waits: mark another caller's claim, so that its end publishes a message
	Awaited bool          // another caller already waits for the end of our claim: write our claim with the mark
	IsLock  bool          // of TryAcquire or Acquire: without Note and Hold
	Owner   string        // of a lock; at most MaxOwner bytes
}

// Claim writes the claim of a token under key if the key is free, and returns what the key holds. start is when the
// operation began. Claim has a claim released in the background if it was not granted, and yet may have arrived or may
// still arrive.
func (s *Store) Claim(
	ctx context.Context, key Key, token uuid.UUID, start time.Time, opts ClaimOptions,
) (Entry, error) {
	o := s.newOp(ctx, key)
	o.markFor(opts.Waits)
	o.Start, o.Late, o.token, o.hold = start, (*lateClaim)(o), token, opts.Hold
	o.claim = appendClaim(o.room[:0], token, opts.Awaited, opts.Hold, start, opts.Note)
	if opts.IsLock {
		o.claim = appendOwner(o.claim, token, opts.Owner)
	}
	e, err := o.takeOrRead(s.config.Fencing || opts.Waits)
	e.MayReturn = o.mayReturn
	if e.State != Granted && (o.arrived || e.MayReturn) {
		s.KeepReleasing(Unneeded{Key: key, Token: token, HasHold: opts.Hold > 0, MayReturn: e.MayReturn})
	}
	return e, err
}

// takeOrRead claims the key, by claim.lua or by SET. SET may find a claim under a hold, and does not show whether the
// lease of that claim has run out. So takeOrRead then claims the key again, by claim.lua: with the same token, so that
// the script recognizes the claim as ours if a SET arrives late. If the script fails, takeOrRead returns what SET found.
func (o *op) takeOrRead(byScript bool) (Entry, error) {
	if byScript {
		return o.claimBy(o.sendScript)
	}
	e, err := o.claimBy(o.sendSet)
	if e.State != Held || e.hold == 0 || e.Left > 0 {
		return e, err
	}
	again, err := o.claimBy(o.sendScript)
	if err == nil || errors.Is(err, ErrForeign) || errors.Is(err, ErrSettled) {
		return again, err
	}
	return e, nil // Held, and no error: a caller that fails open would run what the holder may be running
}

// claimBy claims the key by the command that send sends.
func (o *op) claimBy(send func() (*pipeline.Reply, error)) (Entry, error) {
	r := o.Do(send)
	o.mayReturn = o.mayReturn || r.Unsure
	switch {
	case r.Err != nil:
		return Entry{}, failure("claim", r)
	case o.isGrantedBy(r.Reply):
		return o.newGrant(r.Reply)
	}
	return o.classifyConfirmed(r.Reply)
}

// isGrantedBy reports whether the reply r shows that the key holds the claim of o, written by this command or an
// earlier try.
func (o *op) isGrantedBy(r *pipeline.Reply) bool { return r.Absent || o.isOurs(r.Text) }

// isOurs reports whether stored is the claim that o writes. A waiter may have marked it since.
func (o *op) isOurs(stored []byte) bool { return hasHead(stored, claimMagic, o.token) }

// lateClaim is an op as the LateHandler of its claim: the caller no longer waits.
type lateClaim op

// HandleLate releases the claim if it has arrived, or may have.
func (l *lateClaim) HandleLate(r pipeline.Result) {
	o := (*op)(l)
	hasArrived := r.Err == nil && o.isGrantedBy(r.Reply)
	if hasArrived || r.Unsure {
		o.store.Release(o.store.group.Base(), o.key, o.token, nil, false)
	}
}

// failure returns the error of an operation that has failed. A key of another type is ErrForeign.
func failure(operation string, r pipeline.Result) error {
	if r.Foreign {
		return ErrForeign
	}
	return wrap(operation, r.Err)
}

// newGrant returns the claim that o has written, as Granted, and an error if the claim or its fence is malformed.
func (o *op) newGrant(r *pipeline.Reply) (e Entry, err error) {
	switch {
	case !r.Absent: // written by an earlier try, whose reply was lost
		e, err = parse(r.Text)
	case r.Pair:
		e.Fence, err = parseFence(r.Fence)
	}
	if err != nil {
		return Entry{}, wrap("claim", err)
	}
	e = Entry{State: Granted, Fence: e.Fence, Left: o.store.config.TTL}
	if !r.Pair {
		e.Written = o.claim
	}
	return e, nil
}

// classifyConfirmed is classify, except that under WithReplicas it returns a value only once enough replicas have it.
func (o *op) classifyConfirmed(r *pipeline.Reply) (Entry, error) {
	e, err := classify(r)
	if err != nil || e.State != Settled || !o.store.config.replicated() {
		return e, err
	}
	if err := o.confirmValue(r.Text[:headLen]); err != nil {
		return Entry{}, fmt.Errorf("lock: claim: %w: %w", ErrSettled, err)
	}
	return e, nil
}

// classify returns another caller's claim or value. The reply is that of SET, or the pair of claim.lua. Only the pair
// has the key's time to live, which shows whether the lease of a claim under a hold has run out.
func classify(r *pipeline.Reply) (Entry, error) {
	e, err := parse(r.Text)
	if err != nil || e.State == Settled || !r.Pair {
		return e, err
	}
	untilExpiry := time.Duration(r.Left) * time.Millisecond
	e.Left = untilExpiry - e.hold
	if e.hold > 0 && e.Left <= 0 {
		e.State, e.Left = Abandoned, untilExpiry
	}
	return e, nil
}

// Look returns what the key holds, and never takes the key. If the caller waits, Look marks a claim, so that the claim's
// release or settlement publishes a message.
func (s *Store) Look(ctx context.Context, key Key, waits bool) (Entry, error) {
	o := s.newOp(ctx, key)
	o.markFor(waits)
	r := o.Do(o.sendLook)
	switch {
	case r.Err != nil:
		return Entry{}, failure("look", r)
	case r.Absent:
		return Entry{State: Free}, nil
	}
	return o.classifyConfirmed(r.Reply)
}

// sendSet sends one SET, which writes the claim if the key is absent, and otherwise returns what the key holds. If the
// server refuses this SET, sendSet sends claim.lua instead.
func (o *op) sendSet() (*pipeline.Reply, error) {
	r, err := o.SendDurable("set", o.key.arg, &o.claim, "nx", "get", "px", o.ttl())
	switch {
	case err == nil:
		return r, o.confirmClaim(r)
	case redis.HasErrorPrefix(err, "syntax error"): // Redis before 7.0 refuses NX with GET
		return o.sendScript()
	case rediserr.RefusesWrites(err):
		// The server refuses every SET, even one that would write nothing. A script can still read the key.
		if r, lookErr := o.sendLook(); lookErr == nil && !r.Absent {
			return r, o.confirmClaim(r)
		}
	}
	return nil, err
}

// ttl returns the TTL of the claim, in milliseconds, as an argument of a command: the length of the lease plus the
// hold.
func (o *op) ttl() any {
	if o.hold == 0 {
		return o.store.ttl
	}
	return (o.store.config.TTL + o.hold).Milliseconds()
}

// sendScript sends claim.lua, which does what sendSet does, and also returns the key's time to live. With Fencing it
// draws a fence. If the caller waits, it marks another caller's claim.
func (o *op) sendScript() (*pipeline.Reply, error) {
	args := []any{1, o.key.arg}
	if o.store.config.Fencing {
		args = []any{2, o.key.arg, o.store.config.Namespace.fence(o.key)}
	}
	beforeFence, afterFence := arg(o.claim[:headLen+1]), arg(o.claim[holdPos:])
	r, err := o.EvalDurable(claimScript, append(args, beforeFence, afterFence, o.ttl(), o.mark)...)
	if err != nil {
		return r, err
	}
	return r, o.confirmClaim(r)
}

// sendLook sends claim.lua without a claim, so that the script never takes the key. If the caller waits, it marks a
// claim.
func (o *op) sendLook() (*pipeline.Reply, error) {
	return o.Eval(claimScript, 1, o.key.arg, "", "", 0, o.mark)
}

// markFor sets the last argument of claim.lua, which marks only what begins with it: a claim if the caller waits, and
// otherwise nothing.
func (o *op) markFor(waits bool) {
	if waits {
		o.mark = claimMagic
	}
}
