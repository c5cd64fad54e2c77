package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// What a handler finds when its transaction fails, and what the client gets.
func TestTransactionFails(t *testing.T) {
	errOwn := errors.New("its own error")
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			inTx          func(w http.ResponseWriter) error
			before, after func(string) error
			want          error // of inTx
			status        int   // of the first answer
			effects       int   // after it
		}{
			"the handler's error":     {func(http.ResponseWriter) error { return errOwn }, nil, nil, errOwn, 500, 0},
			"no response":             {func(http.ResponseWriter) error { return nil }, nil, nil, journal.ErrNoResponse, 500, 0},
			"too long":                {long, nil, nil, journal.ErrTooLong, 500, 0},
			"broken":                  {broken, nil, nil, journal.ErrNoResponse, 500, 0},
			"COMMIT is not executed":  {created, fails("commit"), nil, errDown, 500, 0},
			"reply to COMMIT is lost": {created, nil, fails("commit"), nil, 201, 1},
			"database goes away":      {created, fails("commit"), fails("truth"), journal.ErrAnswered, 503, 0},
			"it goes away after it":   {created, nil, fails("commit", "truth"), journal.ErrAnswered, 503, 1},
		} {
			t.Run(name, func(t *testing.T) {
				modes(t, func(t *testing.T, j *memJournal) {
					var got error
					s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("X-Before", "1")
						got = j.inTx(r.Context(), func() error {
							w.Header().Set("X-Inside", "1")
							w.Header().Del("X-Before")
							return c.inTx(w)
						})
						if got != nil {
							w.WriteHeader(http.StatusInternalServerError)
							_, _ = io.WriteString(w, "failed")
						}
					}, middleware.WithMaxResponse(100))
					j.setHooks(c.before, c.after)
					a := s.send()
					s.event()
					if !errors.Is(got, c.want) || a.status != c.status {
						t.Errorf("InTx returned %v, the client got %d (%s); want %v, %d", got, a.status, a.body, c.want, c.status)
					}
					if rolledBack := c.status == 500; rolledBack != (a.header.Get("X-Before") == "1") || rolledBack && (a.header.Get("X-Inside") != "" || a.body != "failed") {
						t.Errorf("%+v, want nothing of what was rolled back", a)
					}
					if c.status == 503 && a.problem() != "commit-unknown" {
						t.Errorf("problem %q", a.problem())
					}
					j.mu.Lock()
					defer j.mu.Unlock()
					if j.effects != c.effects {
						t.Errorf("%d effects, want %d", j.effects, c.effects)
					}
				})
			})
		}
	})
}

func created(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusCreated)
	_, err := io.WriteString(w, "created")
	return err
}

func long(w http.ResponseWriter) error {
	if _, err := io.WriteString(w, strings.Repeat("x", 101)); !errors.Is(err, journal.ErrTooLong) {
		return fmt.Errorf("Write returned %w", err)
	}
	return nil
}

func broken(w http.ResponseWriter) error {
	w.Header().Set("Content-Length", "10")
	return created(w)
}

// fails returns a hook that fails the operations named, each time.
func fails(ops ...string) func(string) error {
	return func(got string) error {
		for _, op := range ops {
			if op == got {
				return errDown
			}
		}
		return nil
	}
}

// No transaction begins once a byte of the response has been sent.
func TestTransactionAfterAFlush(t *testing.T) {
	t.Parallel()
	j := newJournal(true)
	s, _ := journaled(t, redistest.Mini(t), j, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if err := j.inTx(r.Context(), func() error { return created(w) }); !errors.Is(err, middleware.ErrCommitted) {
			t.Errorf("InTx after a flush: %v, want ErrCommitted", err)
		}
	})
	s.want(s.send(), http.StatusOK, middleware.Executed)
	j.want(t, 0, 1)
}
