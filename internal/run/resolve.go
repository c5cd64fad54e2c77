package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Why Resolve has changed nothing. The doors export the first two.
var (
	// ErrJournaled means that the run has a journal, and the Guard has none.
	ErrJournaled = errors.New("onceguard: the run has a journal, which has the last word")
	// ErrSettled means that the token names a run that has its outcome.
	ErrSettled = errors.New("onceguard: the run has its outcome, and Resolve replaces none")
	// ErrFunction and ErrRequest mean that the run has another door than what it is said to have left.
	ErrFunction = errors.New("the run is a function's (package once), which leaves a value or an error")
	ErrRequest  = errors.New("the run is an HTTP request's, which leaves a response")
)

// Left is what an operator has found out that a run has left, or would have: the payload of its product.
type Left struct {
	Door       record.Door
	Head, Body []byte
}

// Resolve ends a run whose outcome is unknown, by what an operator has found out. If left is nil, nothing happened, and
// the key is freed, also if the run has another door than the Guard. Its errors, and what was changed after them, are
// those of middleware.Middleware.Resolve.
//
// A crash in between leaves what a crash of the run at that point would leave: the journal has the outcome, and answers
// a retry.
func (g *Guard) Resolve(ctx context.Context, storageKey, token string, left *Left) error {
	info, err := InspectRedis(ctx, g.locker, storageKey)
	if err != nil {
		return err
	}
	r := &resolver{guard: g, key: info.Key, token: token, left: left}
	if g.Journal == nil {
		return r.resolveClaim(ctx, info)
	}
	entry, err := g.ask.look(ctx, r.key)
	if err != nil {
		return err
	}
	isUnanswered := entry.State == journal.Done && entry.Record == nil && left != nil
	switch {
	case entry.State == journal.Done && !isUnanswered && entry.Token == token:
		return fmt.Errorf("%w: the journal has it", ErrSettled)
	case entry.State != journal.Absent && entry.Token != token:
		return fmt.Errorf("%w: the journal has another run", lock.ErrChanged)
	case entry.State == journal.Unfinished && info.State == lock.Held && info.Token == token: // its process renews its lease
		return lock.ErrLive
	case entry.State == journal.Unfinished, isUnanswered:
		return r.resolveRow(ctx, info, entry)
	case entry.State != journal.Absent:
		return fmt.Errorf("%w: in the journal it has %v left", lock.ErrLive, entry.Left)
	}
	return r.resolveClaim(ctx, info)
}

// resolver resolves one run. The note of its claim, or of its row in the journal, has the fingerprint that encode puts
// into the record.
type resolver struct {
	guard *Guard
	key   string // as it stands in Redis
	token string
	left  *Left // nil: nothing happened
}

// resolveClaim resolves a run that has only its claim in Redis. It stores the record in the journal first, if there is
// one. If nothing happened, the journal has no row to free.
func (r *resolver) resolveClaim(ctx context.Context, info lock.Info) error {
	if err := r.checkClaim(info); err != nil {
		return err
	}
	if r.left == nil {
		return r.guard.free(ctx, r.key, r.token, func(note []byte) error { // it must be the Guard of the run
			_, err := r.encode(note)
			return err
		})
	}
	ended := false
	err := r.settle(ctx, func(note []byte) ([]byte, error) {
		encoded, err := r.encode(note)
		if err == nil && r.guard.Journal != nil {
			err = r.end(ctx, journal.Run{Key: r.key, Token: r.token, Note: note, Resolved: true}, encoded)
			ended = err == nil
		}
		return encoded, err
	})
	if ended {
		return afterJournal(err)
	}
	return err
}

// resolveRow resolves a run that has a row in the journal.
func (r *resolver) resolveRow(ctx context.Context, info lock.Info, entry journal.Entry) error {
	encoded, err := r.encode(entry.Note)
	if err == nil {
		err = r.end(ctx, journal.Run{Key: r.key, Token: r.token, Note: entry.Note, Intent: true, Resolved: true}, encoded)
	}
	if err != nil {
		return err
	}
	if r.checkClaim(info) != nil { // Redis no longer has the claim: the next request for the key asks the journal
		return nil
	}
	if encoded == nil {
		return afterJournal(r.guard.locker.Forget(ctx, r.key, r.token, false))
	}
	return afterJournal(r.settle(ctx, func([]byte) ([]byte, error) { return encoded, nil }))
}

// afterJournal returns the error of Redis after the journal has stored the outcome. It is nil if the claim has ended
// since, or is renewed again: the next run asks the journal before it begins, and the renewed one at its end.
func afterJournal(err error) error {
	if errors.Is(err, lock.ErrChanged) || errors.Is(err, lock.ErrLive) {
		return nil
	}
	return err
}

// settle replaces the abandoned claim by what encode makes of its note.
func (r *resolver) settle(ctx context.Context, encode func(note []byte) ([]byte, error)) error {
	return r.guard.locker.SettleAbandoned(ctx, r.key, r.token, encode, r.guard.retentionFor(r.guard.Retention))
}

// errFree makes SettleAbandoned store nothing after free has read the note.
var errFree = errors.New("onceguard: the key is to be freed")

// free frees a key with the abandoned claim that token names, unless check fails for its note.
func (g *Guard) free(ctx context.Context, key, token string, check func(note []byte) error) error {
	err := g.locker.SettleAbandoned(ctx, key, token, func(note []byte) ([]byte, error) {
		if err := check(note); err != nil {
			return nil, err
		}
		return nil, errFree
	}, g.Retention)
	if !errors.Is(err, errFree) {
		return err
	}
	return g.locker.Forget(ctx, key, token, false)
}

// checkClaim returns an error unless the key holds the abandoned claim.
func (r *resolver) checkClaim(info lock.Info) error {
	switch {
	case info.State == lock.Settled && info.Token == r.token:
		return ErrSettled
	case info.State == lock.Free, info.Token != r.token:
		return fmt.Errorf("%w: it is %v", lock.ErrChanged, info.State)
	case info.State == lock.Held:
		return lock.ErrLive
	}
	return nil
}

// encode returns the record with the fingerprint of note, or nil if nothing happened. In both cases the note must be
// readable.
func (r *resolver) encode(note []byte) ([]byte, error) {
	n, door, err := r.guard.Codec.DecodeAnyNote(r.key, note)
	switch {
	case err != nil:
		return nil, err
	case n.Journaled && r.guard.Journal == nil:
		return nil, ErrJournaled
	case r.left == nil:
		return nil, nil
	case door != r.left.Door && door == record.Value:
		return nil, ErrFunction
	case door != r.left.Door:
		return nil, ErrRequest
	}
	return r.left.encode(&r.guard.Codec, r.key, n.Fingerprint), nil
}

// encode returns a record of a run that has ended now.
func (l *Left) encode(c *record.Codec, key string, of record.Fingerprint) []byte {
	codec, rec := *c, record.Record{Fingerprint: of, Completed: time.Now(), Head: l.Head, Body: l.Body}
	codec.Door = l.Door
	return codec.Append(make([]byte, 0, rec.Room()), key, &rec)
}

// end stores the record in the journal. If the record is nil, it frees the run's row.
func (r *resolver) end(ctx context.Context, run journal.Run, encoded []byte) error {
	entry, err := r.guard.ask.end(ctx, run, encoded, r.guard.retentionFor(r.guard.Retention))
	switch {
	case err != nil:
		return err
	case isOurEnd(entry, run, encoded):
		return nil
	case entry.State == journal.Absent:
		return fmt.Errorf("%w: the journal's row was removed", lock.ErrChanged)
	case entry.Token == run.Token:
		return fmt.Errorf("%w: the journal has it", ErrSettled)
	}
	return fmt.Errorf("%w: the journal has another run, which is %v", lock.ErrChanged, entry.State)
}

// Record returns the record for a row of the journal. It has no fingerprint: byEntry adds that of the row.
func (g *Guard) Record(storageKey string, left *Left) ([]byte, error) {
	key, err := g.locker.ParseKey(storageKey)
	if err != nil {
		return nil, err
	}
	return left.encode(&g.Codec, key, record.Fingerprint{}), nil
}
