package run

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Policy is what a door's user has chosen.
type Policy struct {
	Retention   time.Duration   // how long a record is kept
	Wait        time.Duration   // how long a duplicate waits for the run; 0: not at all
	MaxWaiters  int             // how many wait at the same time, if any do; a tenth of them for one key
	MaxDuration time.Duration   // of a run
	AtMostOnce  bool            // a run whose outcome is unknown is not repeated, nor one that failed
	FailOpen    bool            // an operation runs unprotected while Redis does not answer
	Pauses      bool            // set by a shadow: for a second after a failure of Redis no claim is sent; see Guard.claim
	Journal     journal.Journal // nil: none
	Codec       record.Codec
}

// DefaultPolicy returns the policy of a user who has chosen nothing.
func DefaultPolicy(door record.Door) Policy {
	return Policy{
		Retention: 24 * time.Hour, MaxWaiters: 1000, MaxDuration: 60 * time.Second, Codec: record.Codec{Door: door},
	}
}

// Guard begins runs. It is safe for concurrent use.
type Guard struct {
	locker *lock.Locker
	Policy

	waiting        waiting           // callers in Wait
	redis          breaker           // keeps callers from waiting for Redis during an outage: see Policy.Pauses
	pendingRecords *background.Room  // bytes of records that wait for the journal, without those in pendingSmall
	pendingSmall   *background.Room  // bytes of those that have at most maxSmallRecord
	undoing        *background.Room  // runs in undoBegin
	turns          *background.Turns // of those that retry a call to the journal
}

// New returns a Guard. It panics if p contradicts itself, or if its journal has another namespace than the locker. The
// message names the options of door, a package.
func New(door string, locker *lock.Locker, p Policy) *Guard {
	check := func(ok bool, text string) { option.Check(ok, "%s.%s", door, text) }
	check(!p.AtMostOnce || !p.FailOpen, "WithAtMostOnce: cannot be kept with WithFailOpen")
	check(p.Journal == nil || !p.FailOpen, "WithJournal: cannot be kept with WithFailOpen")
	check(!p.AtMostOnce || p.Retention <= lock.MaxHold,
		"WithAtMostOnce: cannot hold a key for a WithRetention of more than ten years")
	check(!p.Codec.PlaintextReads || len(p.Codec.Keys) > 0, "WithPlaintextReads: means nothing without WithEncryption")
	check(!locker.IsNone() || p.Journal != nil && p.Journal.IsIntent(),
		"WithJournal: a locker without Redis (lock.None) needs an intent journal")
	check(!locker.IsNone() || !p.AtMostOnce,
		"WithAtMostOnce: cannot be kept without Redis (lock.None); the intent journal promises it already")
	if p.Journal != nil {
		locks, _, _ := strings.Cut(locker.StorageKey(""), ":{")
		notes := p.Journal.Namespace()
		option.Check(notes == locks, "%s.WithJournal: the journal has the namespace %q, and the locker %q", door, notes, locks)
	}
	return &Guard{
		locker: locker, Policy: p,
		pendingRecords: background.NewRoom(maxPendingRecords), pendingSmall: background.NewRoom(maxPendingRecords),
		undoing: background.NewRoom(maxUndone), turns: background.NewTurns(journalTurns, journalTimeout),
	}
}

// Request is a caller's request for a run under a key: the part of a Run that exists before it begins.
type Request struct {
	Key          string               // as the door has derived it
	Fingerprints []record.Fingerprint // of the input, one by each rule; the first one is stored. At least one, see record.Kind
	Traceparent  func() record.Trace  // of the operation, for its record; nil: none
	AnswerBy     time.Time            // when a caller that waits must have its answer; zero: no limit but Policy.Wait
	TooOld       bool                 // nothing may run: the key is looked up and never claimed

	// Key of the operation's context, and its value: how the operation finds its run.
	ContextKey, ContextValue any

	// Begin, Wait, Run.Start and Run.CutOff set these:
	StorageKey string // the key as it stands in Redis; may be set before, too
	Phases     Phases
}

// resemblance is the result of comparing a request with a stored fingerprint.
type resemblance int

const (
	same         resemblance = iota // the fingerprint was made of the same input
	different                       // of another input
	incomparable                    // it was made by a rule that the request does not have
)

// compare compares the request with the request that stored was made of. A fingerprint of the zero Kind is the same as
// every other.
func (req *Request) compare(stored record.Fingerprint) resemblance {
	for _, f := range req.Fingerprints {
		switch {
		case f == stored, f.Kind == record.Kind{}, stored.Kind == record.Kind{}:
			return same
		case f.Kind == stored.Kind:
			return different
		}
	}
	return incomparable
}

// StorageKey returns the key as it stands in Redis. The first call makes it and sets it in req. It is empty if the request
// has no key.
func (g *Guard) StorageKey(req *Request) string {
	if req.StorageKey == "" && req.Key != "" {
		req.StorageKey = g.locker.StorageKey(req.Key)
	}
	return req.StorageKey
}

// sendClaim sends a claim, with the request's fingerprint in its note. With AtMostOnce the claim has a hold.
func (g *Guard) sendClaim(ctx context.Context, req *Request) (lock.Claim, error) {
	var room [record.NoteLen]byte
	hold := time.Duration(0)
	if g.AtMostOnce {
		hold = g.Retention
	}
	return g.locker.Claim(ctx, req.Key, g.note(room[:0], req), hold)
}

// note returns the note of the request's claim, in room if it fits. Only an encrypted one needs the storage key.
func (g *Guard) note(room []byte, req *Request) []byte {
	if len(g.Codec.Keys) > 0 {
		g.StorageKey(req)
	}
	return g.Codec.EncodeNote(room, req.StorageKey, record.Note{Fingerprint: req.Fingerprints[0], Journaled: g.Journal != nil})
}

// unclaimed returns the result of a claim that failed with err.
func unclaimed(err error) Result {
	switch {
	case errors.Is(err, lock.ErrForeign):
		return refuse(Unreadable, err)
	case errors.Is(err, lock.ErrSettled):
		return refuse(Unconfirmed, err)
	}
	return refuse(Unavailable, err)
}

// look calls Look of the journal.
func (g *Guard) look(ctx context.Context, key string) (journal.Entry, error) {
	return ask(ctx, func(ctx context.Context) (journal.Entry, error) { return g.Journal.Look(ctx, key) })
}

// end calls End of the journal.
func (g *Guard) end(ctx context.Context, run journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	return ask(ctx, func(ctx context.Context) (journal.Entry, error) { return g.Journal.End(ctx, run, record, keep) })
}

// keepFor returns how long a record is kept for which the operation or the policy has asked for retention.
func (g *Guard) keepFor(retention time.Duration) time.Duration {
	if g.Journal == nil || g.Journal.IsIntent() {
		return retention
	}
	return max(retention, g.MaxDuration+lateSeal)
}

const (
	lateSeal          = time.Minute // how long the statement that follows a seal may take to reach the database
	maxPendingRecords = 64 << 20    // bytes of records that wait for a journal, in one Guard; as much for small ones
	maxUndone         = 4096        // runs whose Begin is being undone, in one Guard
)
