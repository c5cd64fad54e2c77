package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// The journal counts a run's limit from Begin, and hands the run to others after that: its context has ended by then,
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

// A run whose time is over before it begins does not begin, and its row is freed.
func TestBeginTakesTooLong(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, limit := range map[string]time.Duration{"WithMaxDuration": 20 * time.Millisecond, "deadline": time.Minute} {
			t.Run(name, func(t *testing.T) {
				modes(t, func(t *testing.T, j *memJournal) {
					s, _ := journaled(t, b, j, payInTx(j), middleware.WithMaxDuration(limit))
					if name == "deadline" {
						s.outer = func(next http.Handler) http.Handler {
							return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								ctx, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
								defer cancel()
								next.ServeHTTP(w, r.WithContext(ctx))
							})
						}
					}
					j.setHooks(nil, func(op string) error {
						if op == "begin" {
							time.Sleep(300 * time.Millisecond)
						}
						return nil
					})
					e := s.want(s.send(), http.StatusServiceUnavailable, middleware.StoreUnavailable)
					if !errors.Is(e.Err, context.DeadlineExceeded) {
						t.Errorf("error %v", e.Err)
					}
					s.wantRuns(0)
					s.awaitFree(b)
					eventually(t, "the row to be freed", func() bool {
						j.mu.Lock()
						defer j.mu.Unlock()
						return len(j.rows) == 0
					})
				})
			})
		}
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
