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
}

// StoredRecord describes a record, without the header and the body of its response.
type StoredRecord struct {
	Status      int       // of the response; 0 if it is not known, as in some tombstones
	Tombstone   bool      // the response was not kept: a retry gets 409 response-not-stored
	Unknown     bool      // of a Tombstone: it is not known whether the request took effect
	Completed   time.Time // when the handler returned, by the wall clock of its process, in whole milliseconds
	Size        int       // in bytes, as it is stored
	BodySize    int       // of the response in bytes; 0 if Tombstone
	Traceparent string    // see [WithTraceparent]; empty if none was stored
	Function    bool      // it is the result of a function, of package once: Status and BodySize are 0
}

// Inspect returns what Redis and, with [WithJournal], the journal hold under a key. It decodes a stored response, and
// returns neither its header nor its body. It changes nothing.
//
// storageKey is the key in any of the forms that [lock.Locker.Inspect] takes. Inspect returns the errors of
// [lock.Locker.Inspect] and of the journal's Look, and [ErrUnreadable] if a record is damaged, or m does not have the
// keys that it was encrypted with. With ErrUnreadable, Redis and Journal are set. Redis and the journal are asked one
// after the other, so a run that ends in between may show in one of them only. It may be called concurrently.
func (m *Middleware) Inspect(ctx context.Context, storageKey string) (Inspection, error) {
	found, err := m.guard.Inspect(ctx, storageKey)
	i := Inspection{Redis: found.Info, Journal: found.Entry}
	if r := found.Record; r != nil {
		i.Stored = &StoredRecord{
			Tombstone: r.Tombstone, Unknown: r.Unknown, Completed: r.Completed, Size: found.Size,
			Traceparent: r.Trace.String(), Function: found.Door == record.Value,
		}
		if i.Stored.Function {
			return i, err
		}
		i.Stored.Status = response.Status(r.Body)
		if !r.Tombstone {
			i.Stored.BodySize, err = response.BodySize(r.Body)
		}
	}
	return i, err
}
