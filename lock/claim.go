package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// State is what a Claim found.
type State int

const (
	Free      State = iota + 1 // nobody has it: only Wait says so, which does not take it
	Granted                    // the key was absent and is ours now: Claim.Lease
	Held                       // somebody holds it: Claim.Note is the holder's
	Abandoned                  // its holder has asked to Hold it, and does not renew it any more: Claim.Note
	Settled                    // its holder left a value: Claim.Value
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Free:
		return "free"
	case Granted:
		return "granted"
	case Held:
		return "held"
	case Abandoned:
		return "abandoned"
	case Settled:
		return "settled"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Claim is the answer of [Locker.Claim] and [Locker.Wait].
type Claim struct {
	State State
	Key   string // as it stands in Redis, see Locker.StorageKey
	Lease *Lease // when Granted
	Note  []byte // when Held or Abandoned: what the holder said when it claimed
	Value []byte // when Settled: what the last holder left

	// ClaimedAt is when the holder claimed the key, when Held or Abandoned. SettledAt is when the last holder called
	// Settle, when Settled. Both are read from the wall clock of the process that wrote them, to the millisecond: use them
	// to inform, not to decide.
	ClaimedAt, SettledAt time.Time
}

// Claim takes key if it is free, or tells what is there, in one round trip, and a second one if it meets a claim under
// [Lease.Hold]. That somebody holds it is an answer, not an error. The note is stored with the claim, for others who
// claim while it stands; it is kept as given, so let it hold no secret.
//
// An error means that nothing is known: Redis did not answer in time, or answered with an error ([ErrForeign] if the
// key holds what is not ours). With [WithReplicas] a value that is met is confirmed first, which takes a second round
// trip: [ErrSettled] then says that there is a value, and the error beside it why it was not confirmed. A claim that arrives nevertheless is released as soon as that is seen, and else ends by
// itself within the lease's length: nobody thinks to own it.
//
// The lease's context has the values of ctx but not its cancellation: a limit on waiting must not end the lease.
func (l *Locker) Claim(ctx context.Context, key string, note []byte) (Claim, error) {
	if err := l.ready(ctx, "claim"); err != nil {
		return Claim{}, err
	}
	k := l.keyOf(key)
	f, err := l.claim(ctx, k, request{note: note})
	if err != nil {
		return Claim{}, err
	}
	f.Key = k.text
	return f.Claim, nil
}

// request says how a key is asked for.
type request struct {
	note    []byte
	waits   bool // a claim that is met is asked to publish its end
	awaited bool // somebody waits already for the end of ours
}

// found is what a look at a key has found.
type found struct {
	Claim
	hold time.Duration // of a claim
	left time.Duration // how long the claim stands as it does without a renewal, if the look has told
}

func (l *Locker) claim(ctx context.Context, key storageKey, q request) (found, error) {
	t := l.newTrip(ctx, key)
	t.here = !q.waits
	t.start = time.Now()
	t.claim.token = newToken()
	t.claim.text = appendClaim(t.room[:0], t.claim.token, q.awaited, t.start, q.note)
	byScript := func(t *trip) (reply, error) { return t.setOrTell(q.waits) }
	if l.fencing || q.waits {
		return t.attempt(byScript)
	}
	f, err := t.attempt((*trip).setOrGet)
	if f.State == Held && f.hold > 0 && f.left == 0 { // is it still renewed?
		again := l.newTrip(ctx, key)
		again.claim, again.start = t.claim, t.start // its SET may have arrived late
		return again.attempt(byScript)
	}
	return f, err
}

// attempt makes the trip to claim the key. A claim that comes to stand though we do not know of it is released.
func (t *trip) attempt(send func(*trip) (reply, error)) (found, error) {
	t.late = (*trip).undo
	a := t.ask(send)
	switch {
	case a.err != nil && a.unsure:
		t.locker.work.run(func() { t.undo(a) })
		return found{}, a.wrap("claim")
	case a.err != nil:
		return found{}, claimError(a)
	case a.absent, t.claim.isOurs(a.text):
		return t.granted(a.reply)
	}
	return t.met(a.reply)
}

// undo releases a claim that stands, or may.
func (t *trip) undo(a answer) {
	if a.unsure || a.err == nil && (a.absent || t.claim.isOurs(a.text)) {
		t.locker.release(detached(t.ctx), t.key, t.claim.token)
	}
}

// look tells what the key holds and never takes it. A claim that it meets is asked to publish its end.
func (l *Locker) look(ctx context.Context, key storageKey) (found, error) {
	t := l.newTrip(ctx, key)
	a := t.ask(func(t *trip) (reply, error) { return t.tell(true) })
	switch {
	case a.err != nil:
		return found{}, claimError(a)
	case a.absent:
		return found{Claim: Claim{State: Free}}, nil
	}
	return t.met(a.reply)
}

func claimError(a answer) error {
	if a.foreign {
		return ErrForeign
	}
	return a.wrap("claim")
}

// granted returns the lease on a key that was taken, unless the answer took longer than the lease lasts.
func (t *trip) granted(r reply) (f found, err error) {
	l, stands := t.locker, content{}
	switch {
	case !r.absent:
		stands, err = parse(r.text)
	case r.pair:
		stands.fence, err = parseFence(r.fence)
	}
	until := t.start.Add(validity(l.ttl))
	if err == nil && !time.Now().Before(until) {
		err = fmt.Errorf("granted too late: %w", context.DeadlineExceeded)
	}
	if err != nil {
		l.work.run(func() { l.release(detached(t.ctx), t.key, t.claim.token) })
		return found{}, fmt.Errorf("lock: claim: %w", err)
	}
	lease := newGrant(t.ctx, l, l.base, t.key, t.claim.token, stands.fence, t.start, until)
	return found{Claim: Claim{State: Granted, Lease: lease}, left: l.ttl}, nil
}

// met returns what another's claim or value says. A value is not handed out before enough replicas have it.
func (t *trip) met(r reply) (found, error) {
	f, err := met(r)
	if err != nil || f.State != Settled || t.locker.replicas == 0 {
		return f, err
	}
	if err := t.confirmValue(r.text[:headLen]); err != nil {
		return found{}, fmt.Errorf("lock: claim: %w: %w", ErrSettled, err)
	}
	return f, nil
}

// met returns what another's claim or value says.
func met(r reply) (found, error) {
	c, err := parse(r.text)
	switch {
	case err != nil:
		return found{}, err
	case c.state == Settled:
		return found{Claim: Claim{State: Settled, Value: c.rest, SettledAt: c.at}}, nil
	}
	f := found{Claim: Claim{State: Held, Note: c.rest, ClaimedAt: c.at}, hold: c.hold}
	if !r.pair {
		return f, nil
	}
	rest := time.Duration(r.left) * time.Millisecond
	f.left = rest - c.hold
	if c.hold > 0 && f.left <= 0 {
		f.State, f.left = Abandoned, rest
	}
	return f, nil
}

// setOrGet puts the claim under an absent key, or returns what the key holds, by one SET.
func (t *trip) setOrGet() (reply, error) {
	r, acked, err := t.send(t.command(t.locker.replicas > 0, nil,
		"set", t.key.arg, &t.claim.text, "nx", "get", "px", t.locker.ttlArg))
	switch {
	case err == nil:
		return r, t.confirm(r, acked)
	case redis.HasErrorPrefix(err, "syntax error"): // older than 7.0
		return t.setOrTell(false)
	case refusesWrites(err):
		// Even a SET that would only look is refused. What is there counts all the same.
		if r, lookErr := t.tell(false); lookErr == nil && !r.absent {
			return r, t.confirm(r, nil)
		}
	}
	return reply{}, err
}

// refusesWrites tells whether a server says that it takes no writes, though it can be read: it is full, or lacks
// replicas, or cannot save.
func refusesWrites(err error) bool {
	return redis.IsOOMError(err) || redis.IsNoReplicasError(err) || redis.HasErrorPrefix(err, "MISCONF")
}

// setOrTell does the same by a script, which tells more.
func (t *trip) setOrTell(waits bool) (reply, error) {
	args := []any{1, t.key.arg}
	if t.locker.fencing {
		args = []any{2, t.key.arg, t.locker.fenceKey(t.key.text)}
	}
	r, acked, err := t.evalWrite(claimScript,
		append(args, t.claim.toFence(), t.claim.behindFence(), t.locker.ttlArg, awaiting(waits))...)
	if err != nil {
		return r, err
	}
	return r, t.confirm(r, acked)
}

// tell tells by the same script what the key holds, and takes nothing.
func (t *trip) tell(waits bool) (reply, error) {
	return t.eval(claimScript, 1, t.key.arg, "", "", 0, awaiting(waits))
}

// awaiting is what the script compares a claim with before it asks its holder to publish.
func awaiting(waits bool) string {
	if waits {
		return claimMagic
	}
	return ""
}

// fenceKey returns where the counter of a key lies: one for all keys with the same tag, so that counters do not pile up
// with the keys, and need not expire.
func (l *Locker) fenceKey(storageKey string) string {
	return storageKey[:len(l.namespace)+len(":{0123}")] + "fence"
}
