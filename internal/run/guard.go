package run

import (
	"errors"
	"strings"
	"sync"
	"time"

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
		Retention: 24 * time.Hour, MaxWaiters: MaxWaiters("", nil), MaxDuration: 60 * time.Second, Codec: record.Codec{Door: door},
	}
}

// MaxWaiters returns how many may wait: the number in most, or 1,000. It panics when there are two numbers, and when the
// number is below 1. The message names caller, an option.
func MaxWaiters(caller string, most []int) int {
	if len(most) == 0 {
		return 1000
	}
	option.Check(len(most) == 1 && most[0] >= 1, "%s: %v: not one number of 1 or more", caller, most)
	return most[0]
}

// retentionFor returns how long a record is kept for which the operation or the policy has asked for retention.
func (p *Policy) retentionFor(retention time.Duration) time.Duration {
	const lateSeal = time.Minute // how long the statement that follows a seal may take to reach the database
	if p.Journal == nil || p.Journal.IsIntent() {
		return retention
	}
	return max(retention, p.MaxDuration+lateSeal)
}

// Guard begins runs. It is safe for concurrent use.
type Guard struct {
	locker *lock.Locker
	Policy

	ask     asker   // calls the journal
	waiting waiting // callers in Wait
	redis   breaker // keeps callers from waiting for Redis during an outage: see Policy.Pauses
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
		namespace, _, _ := strings.Cut(locker.StorageKey(""), ":{")
		other := p.Journal.Namespace()
		option.Check(other == namespace, "%s.WithJournal: the journal has the namespace %q, and the locker %q", door, other, namespace)
	}
	return &Guard{locker: locker, Policy: p, ask: newAsker(p.Journal, locker)}
}

// waiting counts the callers in Wait. Its zero value is ready to use, and its methods may be called concurrently.
type waiting struct {
	mu    sync.Mutex
	all   int            // guarded by mu
	byKey map[string]int // guarded by mu; has no key without callers
}

// enter counts a caller, unless most are counted, or a tenth of most for its key: one client that repeats its own key
// leaves the others nine tenths. One caller may always wait for a key.
func (w *waiting) enter(key string, most int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= most || w.byKey[key] >= max(1, most/10) {
		return false
	}
	if w.byKey == nil {
		w.byKey = map[string]int{}
	}
	w.all++
	w.byKey[key]++
	return true
}

// exit no longer counts a caller that has entered.
func (w *waiting) exit(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.byKey[key]--; w.byKey[key] == 0 {
		delete(w.byKey, key)
	}
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
func (g *Guard) sendClaim(req *Request) (lock.Claim, error) {
	var room [record.NoteLen]byte
	hold := time.Duration(0)
	if g.AtMostOnce {
		hold = g.Retention
	}
	return g.locker.Claim(req.detached(), req.Key, g.note(room[:0], req), hold)
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
	case errors.Is(err, lock.ErrNoRedis): // there is nothing to look at
		return refuse(Expired, nil)
	case errors.Is(err, lock.ErrForeign):
		return refuse(Unreadable, err)
	case errors.Is(err, lock.ErrSettled):
		return refuse(Unconfirmed, err)
	}
	return refuse(Unavailable, err)
}
