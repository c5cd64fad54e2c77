package middleware

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Inspection is what Redis and the journal hold under a key, as far as it is not secret: see [Middleware.Inspect].
type Inspection struct {
	// Redis is what Redis holds: the state of the key, its token, and its times. Without Redis its State is [lock.Free].
	Redis lock.Info
	// Journal is what the journal holds, without Note and Record. Its State is [journal.Absent] if the journal has
	// nothing, and without [WithJournal].
	Journal journal.Entry
	// Stored describes the record that a retry gets; nil if there is none.
	Stored *StoredRecord
	// Run tells whose run the key has.
	Run RunKind
	// Journaled means that a run without an outcome has a journal, also if m has none. It is false if there is a record.
	Journaled bool

	NoRedis    bool // there is no Redis: lock.None
	HasJournal bool // the journal was asked
}

// RunKind tells whose run a key has. It is empty if the key is free, if what is stored cannot be read, and for a lock of
// package lock.
type RunKind string

const (
	RequestRun  RunKind = "request"  // of an HTTP request
	FunctionRun RunKind = "function" // of a function, of package once
)

// StoredRecord describes a record, without the header and the body of its response. Of a function's result, Status and
// BodySize are 0.
type StoredRecord struct {
	Status      int       // of the response; 0 if it is not known, as in some tombstones
	Tombstone   bool      // the result was not kept: a retry gets 409 response-not-stored, or once.ErrNotStored
	Unknown     bool      // of a Tombstone: it is not known whether the run took effect
	Completed   time.Time // when the handler returned, by the wall clock of its process, in whole milliseconds
	Size        int       // in bytes, as it is stored
	BodySize    int       // of the response in bytes; 0 if Tombstone
	Traceparent string    // see [WithTraceparent]; empty if none was stored
}

// Inspect returns what Redis and, with [WithJournal], the journal hold under a key. It decodes what is stored, and
// returns neither header nor body of a response, nor a function's result. It changes nothing.
//
// storageKey is the key in any of the forms that [lock.Locker.Inspect] takes. Inspect returns the errors of
// [lock.Locker.Inspect] and of the journal's Look, and [ErrUnreadable] if a record or the note of a claim is damaged, or m
// does not have the keys that it was encrypted with. With ErrUnreadable, Redis and Journal are set. Redis and the journal
// are asked one after the other, so a run that ends in between may show in one of them only. It may be called
// concurrently.
func (m *Middleware) Inspect(ctx context.Context, storageKey string) (Inspection, error) {
	redis, row, err := m.guard.Inspect(ctx, storageKey)
	i := Inspection{Redis: redis, Journal: row, NoRedis: m.locker.IsNone(), HasJournal: m.guard.Journal != nil}
	i.Journal.Note, i.Journal.Record = nil, nil
	if err == nil {
		err = i.decode(&m.guard.Codec, row.Record, row.Note)
	}
	return i, err
}

// decode sets what the record says or, without one, the note. A free key has neither, and the claim of a lock no note.
func (i *Inspection) decode(codec *record.Codec, encoded, note []byte) error {
	kinds := map[record.Door]RunKind{record.HTTP: RequestRun, record.Value: FunctionRun}
	switch {
	case encoded != nil:
		r, door, err := codec.DecodeAny(i.Redis.Key, encoded)
		if err != nil {
			return err
		}
		i.Run, i.Stored = kinds[door], &StoredRecord{
			Tombstone: r.Tombstone, Unknown: r.Unknown, Completed: r.Completed, Size: len(encoded), Traceparent: r.Trace.String(),
		}
		if door == record.HTTP {
			i.Stored.Status = response.Status(r.Body)
		}
		if door != record.HTTP || r.Tombstone {
			return nil
		}
		stored, err := response.Decode(r.Body)
		if err == nil {
			i.Stored.BodySize = len(stored.Body)
		}
		return err
	case len(note) > 0:
		n, door, err := codec.DecodeAnyNote(i.Redis.Key, note)
		if err != nil {
			return err
		}
		i.Run, i.Journaled = kinds[door], n.Journaled
	}
	return nil
}

// State returns what the next request with the key meets: Redis is asked first, and then the journal.
func (i Inspection) State() lock.State {
	redis, row := i.Redis.State, i.Journal.State
	switch {
	case redis == lock.Settled || redis == lock.Held:
		return redis
	case row == journal.Done:
		return lock.Settled
	case row == journal.Running:
		return lock.Held
	case redis == lock.Abandoned || row == journal.Unfinished:
		return lock.Abandoned
	}
	return lock.Free
}
