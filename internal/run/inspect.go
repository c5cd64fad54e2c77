package run

import (
	"context"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Inspect returns what Redis and the journal hold under a key. Record and Note of the row are those that count, also if
// only Redis has them: the record that a duplicate gets, and the note of the key's run. Inspect changes nothing. Its errors
// are those of middleware.Middleware.Inspect, but for what cannot be decoded; with one, the rest is zero.
func (g *Guard) Inspect(ctx context.Context, storageKey string) (redis lock.Info, row journal.Entry, err error) {
	if redis, err = InspectRedis(ctx, g.locker, storageKey); err != nil {
		return lock.Info{}, row, err
	}
	var found lock.Claim
	if redis.State != lock.Free {
		if found, err = g.locker.LookStored(ctx, redis.Key); err != nil {
			return lock.Info{}, row, err
		}
	}
	if g.Journal != nil {
		if row, err = g.ask.look(ctx, redis.Key); err != nil {
			return lock.Info{}, journal.Entry{}, err
		}
	}
	if found.Value != nil { // nil if the key has changed since
		row.Record = found.Value // a duplicate gets the record in Redis
	}
	if row.Note == nil { // else the claim may be that of a retry
		row.Note = found.Note
	}
	return redis, row, nil
}

// InspectRedis returns what Redis holds under a key: nothing, without Redis.
func InspectRedis(ctx context.Context, l *lock.Locker, storageKey string) (lock.Info, error) {
	if l.IsNone() {
		key, err := l.ParseKey(storageKey)
		return lock.Info{Key: key, State: lock.Free}, err
	}
	return l.Inspect(ctx, storageKey)
}
