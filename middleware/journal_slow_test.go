package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// The journal counts a run's limit from Begin, and hands the run to others after that. The run's context ends before,
// however long the reply to Begin took.
func TestRunEndsWithinItsLimit(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			var stored time.Time
			s, _ := journaled(t, b, j, func(_ http.ResponseWriter, r *http.Request) {
				if deadline, _ := r.Context().Deadline(); deadline.After(stored.Add(time.Minute)) {
					t.Errorf("the run's context ends %v after the limit of its row", deadline.Sub(stored.Add(time.Minute)))
				}
			}, middleware.WithMaxDuration(time.Minute))
			j.setHooks(nil, func(op string) error {
				if op == "begin" {
					stored = time.Now()
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			})
			s.want(s.send(), http.StatusOK, middleware.Executed)
		})
	})
}

// A journal that panics does not leave the key with a lease that is renewed for ever.
func TestBeginPanics(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		b.FlushAll(t)
		j := newJournal(true)
		j.setHooks(panics("begin"), nil)
		locker := newLocker(t, b.Client(t), lock.WithTTL(300*time.Millisecond))
		s := serveOn(t, locker, payInTx(j), middleware.WithJournal(j), middleware.WithMaxDuration(200*time.Millisecond))
		if _, err := s.try(s.request()); err == nil {
			t.Error("the panic did not reach the client")
		}
		eventually(t, "the lease to run out", func() bool {
			b.Elapse(t, 5*time.Millisecond)
			return len(b.Keys(t)) == 0
		})
	})
}
