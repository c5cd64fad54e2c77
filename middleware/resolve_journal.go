package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// resolveJournaled resolves the run in the journal and then in Redis. A crash in between leaves what a crash of the run
// at that point would leave: the journal has the outcome, and answers a retry.
func (r *resolver) resolveJournaled(ctx context.Context, info lock.Info) error {
	entry, err := askJournal(ctx, func(ctx context.Context) (journal.Entry, error) { return r.journal.Look(ctx, r.key) })
	if err != nil {
		return err
	}
	switch {
	case entry.State == journal.Done:
		return fmt.Errorf("%w: the journal has its outcome", lock.ErrChanged)
	case entry.State != journal.Absent && entry.Token != r.token:
		return fmt.Errorf("%w: the journal has another run, or a sweep has taken this one", lock.ErrChanged)
	case entry.State == journal.Unfinished:
		if info.State == lock.Held && info.Token == r.token { // the process still renews its lease
			return lock.ErrLive
		}
		return r.resolveRow(ctx, info, entry)
	case entry.State != journal.Absent:
		return fmt.Errorf("%w: in the journal it has %v left", lock.ErrLive, entry.Left)
	}
	return r.resolveWithoutRow(ctx, info)
}

// resolveRow resolves a run that has a row in the journal.
func (r *resolver) resolveRow(ctx context.Context, info lock.Info, entry journal.Entry) error {
	run := journal.Run{Key: r.key, Token: r.token, Note: entry.Note, Intent: true}
	encoded, err := r.outcome(entry.Note)
	if err == nil {
		err = r.end(ctx, run, encoded)
	}
	if err != nil {
		return err
	}
	if r.checkClaim(info) != nil { // Redis no longer has the claim: the next request for the key asks the journal
		return nil
	}
	if r.resolution.kind == nothingHappened {
		err = r.locker.Forget(ctx, r.key, r.token)
	} else {
		same := func([]byte) ([]byte, error) { return encoded, nil }
		err = r.locker.SettleAbandoned(ctx, r.key, r.token, same, r.retention)
	}
	return afterJournal(err)
}

// afterJournal returns the error of Redis after the journal has stored the outcome. It is nil if the claim has ended
// since, or is renewed again: the next run asks the journal before it begins, and the renewed one at its end.
func afterJournal(err error) error {
	if errors.Is(err, lock.ErrChanged) || errors.Is(err, lock.ErrLive) {
		return nil
	}
	return err
}

// resolveWithoutRow resolves a run that the journal does not know. If nothing happened, the journal has no row to free.
func (r *resolver) resolveWithoutRow(ctx context.Context, info lock.Info) error {
	if err := r.checkClaim(info); err != nil {
		return err
	}
	if r.resolution.kind == nothingHappened {
		return r.free(ctx)
	}
	ended := false
	err := r.locker.SettleAbandoned(ctx, r.key, r.token, func(note []byte) ([]byte, error) {
		encoded, err := r.encode(note)
		if err == nil {
			err = r.end(ctx, journal.Run{Key: r.key, Token: r.token, Note: note}, encoded)
		}
		ended = err == nil
		return encoded, err
	}, r.retention)
	if ended {
		return afterJournal(err)
	}
	return err
}

// outcome returns the encoded record, or nil if nothing happened. In both cases the note must be readable.
func (r *resolver) outcome(note []byte) ([]byte, error) {
	if r.resolution.kind == nothingHappened {
		_, err := r.decode(note)
		return nil, err
	}
	return r.encode(note)
}

// end stores the record in the journal. If the record is nil, it frees the run's row.
func (r *resolver) end(ctx context.Context, run journal.Run, encoded []byte) error {
	entry, err := askJournal(ctx, func(ctx context.Context) (journal.Entry, error) {
		return r.journal.End(ctx, run, encoded, r.retention)
	})
	switch {
	case err != nil:
		return err
	case !isOurEnd(entry, run, encoded):
		return fmt.Errorf("%w: the journal has the outcome %v of another run", lock.ErrChanged, entry.State)
	}
	return nil
}
