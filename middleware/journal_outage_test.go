package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// undoneJournal counts the runs that End is called for, and does not answer before the test is over.
type undoneJournal struct {
	*memJournal

	over chan struct{}

	mu     sync.Mutex
	tokens map[string]bool
}

func (*undoneJournal) Begin(context.Context, journal.Run) (journal.Entry, error) {
	return journal.Entry{}, errDown
}

func (j *undoneJournal) End(_ context.Context, run journal.Run, _ []byte, _ time.Duration) (journal.Entry, error) {
	j.mu.Lock()
	j.tokens[run.Token] = true
	j.mu.Unlock()
	<-j.over
	return journal.Entry{}, nil
}

func (j *undoneJournal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.tokens)
}

// A database that is down does not gather a goroutine for each request.
func TestFewRunsAreUndone(t *testing.T) {
	const limit = 4096
	j := &undoneJournal{memJournal: newJournal(true), over: make(chan struct{}), tokens: map[string]bool{}}
	store := &canned{claim: []byte("$-1\r\n")}
	locker := store.locker(t)
	defer close(j.over)
	h := middleware.Idempotency(locker, fixedKey, middleware.WithJournal(j))(http.NotFoundHandler())
	for range limit + 500 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Fatalf("status %d", w.Code)
		}
	}
	eventually(t, "all to be tried", func() bool { return j.count() >= limit })
	time.Sleep(100 * time.Millisecond) // the pause before the first try is at most 20 ms
	if n := j.count(); n > limit {
		t.Errorf("%d runs are being undone, want %d", n, limit)
	}
}

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
