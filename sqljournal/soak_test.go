package sqljournal_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// fault: all connections break every few milliseconds, and Redis forgets everything, while several callers take each message at
// once, and again until they have its value. Expected: one effect and one value for each.
func TestConnectionsBreakAllTheTime(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		const messages, callers = 16, 4
		in := newInbox(newScene(t, d, "transactional"))
		var breaking, calling sync.WaitGroup
		over, cancel := context.WithCancel(t.Context())
		breaking.Go(func() {
			// The pauses grow, so that on a busy machine a caller gets through as well.
			for pause := 50 * time.Millisecond; over.Err() == nil; pause += pause / 20 {
				select {
				case <-time.After(pause):
					in.proxy.Cut()
					in.redis.FlushAll()
				case <-over.Done():
				}
			}
		})
		var values [messages][callers]string
		for m := range messages {
			effect := journal.Run{Key: fmt.Sprint("message ", m)}
			key := once.Key{Operation: "pay", Scope: once.Anyone, ID: effect.Key}
			for caller := range callers {
				calling.Go(func() {
					for try, err := 0, context.Canceled; err != nil; try++ {
						values[m][caller], _, err = sqljournal.Do(t.Context(), in.guard, key, nil, func(_ context.Context, tx *sql.Tx) (string, error) {
							return fmt.Sprint("caller ", caller, ", try ", try), once.NothingHappened(take(tx, effect))
						})
					}
				})
			}
		}
		calling.Wait()
		cancel()
		breaking.Wait()
		for m, of := range values {
			mustHaveEffects(t, in.db, journal.Run{Key: fmt.Sprint("message ", m)}, 1)
			for _, value := range of {
				if value == "" || value != of[0] {
					t.Errorf("message %d: the values %q", m, of)
				}
			}
		}
	})
}
