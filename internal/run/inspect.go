package run

import (
	"context"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Inspection is what Redis and the journal hold under a key.
type Inspection struct {
	Info   lock.Info
	Entry  journal.Entry  // without its Note and Record
	Record *record.Record // that a duplicate gets; nil if there is none
	Door   record.Door    // of the Record
	Size   int            // of the record in bytes, as it is stored
}

// Inspect returns what Redis and the journal hold under a key. It changes nothing. Its errors, and what
// it returns with them, are those of middleware.Middleware.Inspect.
func (g *Guard) Inspect(ctx context.Context, storageKey string) (i Inspection, err error) {
	if i.Info, err = g.inspectRedis(ctx, storageKey); err != nil {
		return Inspection{}, err
	}
	var encoded []byte
	if i.Info.State == lock.Settled {
		claim, err := g.locker.LookStored(ctx, i.Info.Key)
		if err != nil {
			return Inspection{}, err
		}
		encoded = claim.Value // nil if the key has changed since
	}
	if g.Journal != nil {
		i.Entry, err = g.look(ctx, i.Info.Key)
		if err != nil {
			return Inspection{}, err
		}
		if encoded == nil { // else a duplicate gets the record in Redis
			encoded = i.Entry.Record
		}
		i.Entry.Note, i.Entry.Record = nil, nil
	}
	if encoded == nil {
		return i, nil
	}
	r, door, err := g.Codec.DecodeAny(i.Info.Key, encoded)
	if err != nil {
		return i, err
	}
	i.Record, i.Door, i.Size = &r, door, len(encoded)
	return i, nil
}

// inspectRedis returns what Redis holds under a key: nothing, without Redis.
func (g *Guard) inspectRedis(ctx context.Context, storageKey string) (lock.Info, error) {
	if g.locker.IsNone() {
		key, err := g.locker.ParseKey(storageKey)
		return lock.Info{Key: key, State: lock.Free}, err
	}
	return g.locker.Inspect(ctx, storageKey)
}
