package run

import (
	"context"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Inspection is what Redis and the journal hold under a key.
type Inspection struct {
	Info      lock.Info
	Entry     journal.Entry  // without its Note and Record
	Record    *record.Record // that a duplicate gets; nil if there is none
	Size      int            // of the record in bytes, as it is stored
	IsRun     bool           // the key is that of a run: Door is set
	Door      record.Door    // of the run
	Journaled bool           // the note says that the run has a journal
}

// Inspect returns what Redis and the journal hold under a key. It changes nothing. Its errors, and what
// it returns with them, are those of middleware.Middleware.Inspect.
func (g *Guard) Inspect(ctx context.Context, storageKey string) (i Inspection, err error) {
	if i.Info, err = InspectRedis(ctx, g.locker, storageKey); err != nil {
		return Inspection{}, err
	}
	var claim lock.Claim
	if i.Info.State != lock.Free {
		if claim, err = g.locker.LookStored(ctx, i.Info.Key); err != nil {
			return Inspection{}, err
		}
	}
	encoded, note := claim.Value, claim.Note // nil if the key has changed since
	if g.Journal != nil {
		i.Entry, err = g.ask.look(ctx, i.Info.Key)
		if err != nil {
			return Inspection{}, err
		}
		if encoded == nil { // else a duplicate gets the record in Redis
			encoded = i.Entry.Record
		}
		if i.Entry.Note != nil { // else the claim may be that of a retry
			note = i.Entry.Note
		}
		i.Entry.Note, i.Entry.Record = nil, nil
	}
	return i, g.decode(&i, encoded, note)
}

// decode sets what the record says or, without one, the note.
func (g *Guard) decode(i *Inspection, encoded, note []byte) error {
	switch {
	case encoded != nil:
		r, door, err := g.Codec.DecodeAny(i.Info.Key, encoded)
		if err != nil {
			return err
		}
		i.Record, i.Size, i.IsRun, i.Door = &r, len(encoded), true, door
	case len(note) > 0: // without a note it is a lock's
		n, door, err := g.Codec.DecodeAnyNote(i.Info.Key, note)
		if err != nil {
			return err
		}
		i.IsRun, i.Door, i.Journaled = true, door, n.Journaled
	}
	return nil
}

// InspectRedis returns what Redis holds under a key: nothing, without Redis.
func InspectRedis(ctx context.Context, l *lock.Locker, storageKey string) (lock.Info, error) {
	if l.IsNone() {
		key, err := l.ParseKey(storageKey)
		return lock.Info{Key: key, State: lock.Free}, err
	}
	return l.Inspect(ctx, storageKey)
}
