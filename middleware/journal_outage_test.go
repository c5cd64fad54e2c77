package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// expiring is a journal whose records are about to expire.
type expiring struct{ *memJournal }

func (j expiring) Begin(ctx context.Context, run journal.Run) (journal.Entry, error) {
	e, err := j.memJournal.Begin(ctx, run)
	e.Left = min(e.Left, time.Microsecond)
	return e, err
}

func (j expiring) End(ctx context.Context, run journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	e, err := j.memJournal.End(ctx, run, record, keep)
	e.Left = min(e.Left, time.Microsecond)
	return e, err
}

// A record that expires before Redis could have it does not leave the key with a lease that is renewed for ever.
func TestRecordExpiresAtOnce(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			b.FlushAll(t)
			s := serve(t, b, payOnce(), middleware.WithJournal(expiring{j}))
			s.want(s.send(), http.StatusCreated, middleware.Executed)
			b.FlushAll(t)
			if e := s.want(s.send(), http.StatusCreated, middleware.Replayed); e.Err != nil {
				t.Error(e.Err)
			}
			s.awaitFree(b)

			j.setHooks(at("end", 1), nil) // the background has it at once
			s.want(s.send(key("k2")), http.StatusCreated, middleware.NotStored)
			s.awaitFree(b)
		})
	})
}
