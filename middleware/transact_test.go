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
			"broken":                  {broken, nil, nil, journal.ErrBroken, 500, 0},
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

// A retry of a transaction begins with the response as it was; the second commit is refused.
func TestTransactionAgain(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "a")
				for _, fail := range []error{errors.New("serialization failure"), nil} {
					err := j.inTx(r.Context(), func() error {
						w.Header().Set("Trailer", "X-Sum")
						_, _ = io.WriteString(w, "b")
						w.Header().Set("X-Sum", "1")
						return fail
					})
					if !errors.Is(err, fail) {
						t.Errorf("got %v, want %v", err, fail)
					}
				}
				if err := j.inTx(r.Context(), func() error { return nil }); !errors.Is(err, journal.ErrTwice) {
					t.Errorf("the second transaction: %v, want ErrTwice", err)
				}
			})
			first := s.send()
			s.want(first, http.StatusOK, middleware.Executed)
			if first.body != "ab" {
				t.Errorf("body %q, want ab", first.body)
			}
			b.FlushAll(t)
			again := s.send()
			s.want(again, http.StatusOK, middleware.Replayed)
			if again.body != first.body {
				t.Errorf("replay %q", again.body)
			}
			j.want(t, 1, 1)
		})
	})
}

// What a handler does after its commit changes nothing.
func TestAfterTheCommit(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, after := range map[string]func(*testing.T, http.ResponseWriter, *http.Request){
			"write": func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/other")
				w.WriteHeader(http.StatusTeapot)
				if _, err := io.WriteString(w, "more"); !errors.Is(err, journal.ErrAnswered) {
					t.Errorf("Write: %v, want ErrAnswered", err)
				}
				if err := http.NewResponseController(w).Flush(); !errors.Is(err, journal.ErrAnswered) {
					t.Errorf("Flush: %v, want ErrAnswered", err)
				}
			},
			"Discard": func(t *testing.T, _ http.ResponseWriter, r *http.Request) {
				if err := middleware.FromContext(r.Context()).Discard(); !errors.Is(err, middleware.ErrCommitted) {
					t.Errorf("Discard: %v, want ErrCommitted", err)
				}
			},
			"Unknown": func(_ *testing.T, _ http.ResponseWriter, r *http.Request) {
				middleware.FromContext(r.Context()).Unknown()
			},
			"panic": func(*testing.T, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		} {
			t.Run(name, func(t *testing.T) {
				modes(t, func(t *testing.T, j *memJournal) {
					s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Location", "/1")
						if err := j.inTx(r.Context(), func() error { return created(w) }); err != nil {
							t.Error(err)
						}
						after(t, w, r)
					})
					a, err := s.try(s.request())
					if e := s.event(); e.Outcome != middleware.Executed {
						t.Errorf("outcome %s, %v", e.Outcome, e.Err)
					}
					if name == "panic" != (err != nil) {
						t.Fatalf("the client got %+v, %v", a, err)
					}
					for range 2 {
						again := s.send()
						s.want(again, http.StatusCreated, middleware.Replayed)
						if again.body != "created" || again.header.Get("Location") != "/1" {
							t.Errorf("replay %+v", again)
						}
						b.FlushAll(t)
					}
					j.want(t, 1, 1)
				})
			})
		}
	})
}

// What is committed is stored whatever its status is.
func TestCommittedFailureIsStored(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				_ = middleware.FromContext(r.Context()).Discard()
				if err := j.inTx(r.Context(), func() error { w.WriteHeader(http.StatusBadGateway); return nil }); err != nil {
					t.Error(err)
				}
			})
			s.want(s.send(), http.StatusBadGateway, middleware.Executed)
			s.want(s.send(), http.StatusBadGateway, middleware.Replayed)
			j.want(t, 1, 1)
		})
	})
}

// Nothing leaves inside a transaction; nothing can begin one once a byte has left.
func TestFlushAndTransaction(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(w)
				if r.URL.RawQuery == "before" {
					_ = control.Flush()
					if err := j.inTx(r.Context(), func() error { return created(w) }); !errors.Is(err, middleware.ErrCommitted) {
						t.Errorf("InTx after a flush: %v, want ErrCommitted", err)
					}
					return
				}
				err := j.inTx(r.Context(), func() error {
					_ = created(w)
					if err := control.Flush(); err != nil {
						t.Errorf("Flush: %v", err)
					}
					if _, _, err := control.Hijack(); !errors.Is(err, http.ErrNotSupported) {
						t.Errorf("Hijack: %v, want ErrNotSupported", err)
					}
					return errors.New("rolled back")
				})
				if err == nil {
					t.Error("InTx returned nil")
				}
				w.WriteHeader(http.StatusConflict)
			})
			a := s.send()
			s.event()
			if a.status != http.StatusConflict || a.body != "" {
				t.Errorf("got %+v, want the 409 alone", a)
			}
			s.send(key("k2"), target("/payments?before"))
			s.event()
			j.mu.Lock()
			defer j.mu.Unlock()
			if j.effects != 0 {
				t.Errorf("%d effects", j.effects)
			}
		})
	})
}

// A goroutine that the handler has left behind cannot seal; one that is in its COMMIT is waited for.
func TestTransactionOfAGoroutineLeftBehind(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			inside, returned, committing := make(chan struct{}), make(chan struct{}), make(chan struct{})
			late := make(chan error, 1)
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "late" {
					go func() {
						late <- j.inTx(r.Context(), func() error { _ = created(w); close(inside); <-returned; return nil })
					}()
					<-inside
					return
				}
				go func() { late <- j.inTx(r.Context(), func() error { return created(w) }) }()
				<-committing
			})
			a := s.send(target("/payments?late"))
			s.event()
			close(returned)
			if err := <-late; err == nil || a.status != http.StatusServiceUnavailable {
				t.Errorf("InTx returned %v, the client got %d", err, a.status)
			}
			j.mu.Lock()
			effects := j.effects
			j.mu.Unlock()
			if effects != 0 {
				t.Errorf("%d effects, want none", effects)
			}

			j.setHooks(func(op string) error {
				if op == "commit" {
					close(committing)
				}
				return nil
			}, nil)
			a = s.send(key("k2"))
			s.want(a, http.StatusCreated, middleware.Executed)
			if err := <-late; err != nil {
				t.Errorf("InTx returned %v", err)
			}
		})
	})
}

// Outside of a protected run, and in one without a journal, a transaction is just that.
func TestTransactWithoutAJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		j := newJournal(true)
		b.FlushAll(t)
		s := serve(t, b, payInTx(j))
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		s.want(s.send(noKey), http.StatusCreated, middleware.Unprotected)
		j.want(t, 2, 0)
	})
}

// A journal that returns nil without having sealed has committed something else.
func TestUnsealed(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(_ http.ResponseWriter, r *http.Request) {
				err := journal.Transact(r.Context(),
					func(func() (journal.Commit, error)) error { return nil }, nil)
				if !errors.Is(err, journal.ErrUncommitted) {
					t.Errorf("Transact: %v, want ErrUncommitted", err)
				}
			})
			a := s.send()
			if e := s.want(a, http.StatusServiceUnavailable, middleware.Unknown); !errors.Is(e.Err, journal.ErrUncommitted) || a.problem() != "commit-unknown" {
				t.Errorf("%s, %v", a.problem(), e.Err)
			}
		})
	})
}

// The first COMMIT arrives after truth has not seen it, while the handler already tries again with another response. What
// was committed is the answer, although both have the run's token.
func TestEarlierTryIsCommitted(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				var committed journal.Entry
				for _, body := range []string{"first", "second"} {
					err := journal.Transact(r.Context(), func(seal func() (journal.Commit, error)) error {
						_, _ = io.WriteString(w, body)
						commit, err := seal()
						if err != nil {
							t.Errorf("seal: %v", err)
						}
						if body == "second" {
							return errDown
						}
						committed = journal.Entry{
							State: journal.Done, Token: commit.Run.Token, Record: commit.Record, Left: commit.Keep,
						}
						return errDown
					}, func(journal.Run, bool) (journal.Entry, error) {
						if body == "first" {
							return journal.Entry{}, nil
						}
						return committed, nil
					})
					if want := map[string]error{"first": errDown, "second": journal.ErrAnswered}[body]; !errors.Is(err, want) {
						t.Errorf("the %s transaction: %v, want %v", body, err, want)
					}
				}
			})
			if a := s.send(); a.status != http.StatusOK || a.body != "first" {
				t.Errorf("the client got %d %q, want what was committed", a.status, a.body)
			}
			s.event()
		})
	})
}
