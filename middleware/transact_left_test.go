package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// Tests of transactions that the handler does not see to their end.

// wantCommitUnknown checks that the client is told that the outcome is not known yet.
func (s *site) wantCommitUnknown(a answer, why string) {
	s.t.Helper()
	e := s.want(a, http.StatusServiceUnavailable, middleware.Unknown)
	if a.problem() != "commit-unknown" || e.Err == nil || !strings.Contains(e.Err.Error(), why) {
		s.t.Errorf("problem %q, error %v; want commit-unknown, %q", a.problem(), e.Err, why)
	}
	if a.header.Get("X-Inside") != "" {
		s.t.Error("the header has what was set in the transaction")
	}
}

// What a transaction has written does not leave if the handler returns before its end: it is rolled back.
func TestHandlerReturnsDuringItsTransaction(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, last := range map[string]func(commit func() error) error{
			"seal":   func(commit func() error) error { return commit() },
			"error":  func(func() error) error { return errors.New("its own error") },
			"return": func(func() error) error { return nil },
		} {
			t.Run(name, func(t *testing.T) {
				modes(t, func(t *testing.T, j *memJournal) {
					inside, returned, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
					s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
						go func() {
							late <- journal.Transact(r.Context(), func(seal func() (journal.Commit, error)) error {
								w.Header().Set("X-Inside", "1")
								_ = created(w)
								close(inside)
								<-returned
								return last(func() error { _, err := seal(); return err })
							}, func(run journal.Run, _ bool) (journal.Entry, error) {
								return j.Look(context.Background(), run.Key)
							})
						}()
						<-inside
					})
					j.setHooks(func(op string) error { // for the race detector: it ends while the run is concluded
						if op == "end" {
							t.Error("the response is stored")
						}
						return nil
					}, nil)
					done := make(chan answer, 1)
					r := s.request()
					go func() {
						a, err := s.try(r)
						if err != nil {
							t.Error(err)
						}
						done <- a
					}()
					<-inside
					a := <-done
					close(returned)
					s.wantCommitUnknown(a, "before its transaction")
					if err := <-late; err == nil {
						t.Error("Transact returned nil")
					}
				})
			})
		}
	})
}

// A transaction does not begin when the handler has returned.
func TestTransactionAfterTheHandler(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			returned, late := make(chan struct{}), make(chan error, 1)
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				go func() {
					<-returned
					late <- j.inTx(r.Context(), func() error { return created(w) })
				}()
				w.WriteHeader(http.StatusAccepted)
			})
			s.want(s.send(), http.StatusAccepted, middleware.Executed)
			close(returned)
			if err := <-late; err == nil {
				t.Error("InTx returned nil")
			}
			j.want(t, 0, 1)
		})
	})
}

// After a panic behind the seal nobody knows whether the transaction was committed, even if the handler recovers.
func TestPanicBehindTheSeal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, hook := range map[string]func(j *memJournal){
			"before the commit": func(j *memJournal) { j.setHooks(panics("commit"), nil) },
			"after it":          func(j *memJournal) { j.setHooks(nil, panics("commit")) },
			"in truth":          func(j *memJournal) { j.setHooks(panics("truth"), fails("commit")) },
		} {
			t.Run(name, func(t *testing.T) {
				modes(t, func(t *testing.T, j *memJournal) {
					s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
						defer func() {
							if recover() == nil {
								t.Error("the panic did not go on")
							}
							if err := j.inTx(r.Context(), func() error { return nil }); !errors.Is(err, journal.ErrAnswered) {
								t.Errorf("another transaction: %v, want ErrAnswered", err)
							}
							w.WriteHeader(http.StatusInternalServerError)
						}()
						_ = j.inTx(r.Context(), func() error { w.Header().Set("X-Inside", "1"); return created(w) })
					})
					hook(j)
					s.wantCommitUnknown(s.send(), "panicked")
					j.setHooks(nil, nil)
					if name == "before the commit" {
						return
					}
					b.FlushAll(t)
					again := s.send()
					s.want(again, http.StatusCreated, middleware.Replayed)
					if again.body != "created" {
						t.Errorf("replay %+v", again)
					}
				})
			})
		}
	})
}

// panics returns a hook that panics at the operation named.
func panics(op string) func(string) error {
	return func(got string) error {
		if got == op {
			panic("at " + op)
		}
		return nil
	}
}

// After Keep a run is not repeated, although its transaction turns out not to be committed.
func TestKeepAndCommitUnknown(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, committed := range map[string]bool{"committed": true, "not committed": false} {
			t.Run(name, func(t *testing.T) {
				j := newJournal(false)
				s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
					e := middleware.FromContext(r.Context())
					e.Keep()
					e.Retain(time.Minute) // of a response: not of what stands for an unknown outcome
					_ = j.inTx(r.Context(), func() error { return created(w) })
				})
				if j.setHooks(fails("commit"), fails("truth")); committed {
					j.setHooks(nil, fails("commit", "truth"))
				}
				s.wantCommitUnknown(s.send(), errDown.Error())
				j.setHooks(nil, nil)
				var a answer
				eventually(t, "the background", func() bool {
					a = s.send()
					s.event()
					return a.problem() != "in-flight"
				})
				if committed && !(a.replayed() && a.body == "created") {
					t.Errorf("got %+v", a)
				}
				if !committed {
					wantUnknownNotStored(t, a)
					j.setHooks(fails("begin", "look"), nil)
					b.Elapse(t, time.Hour)
					a := s.send()
					s.want(a, http.StatusConflict, middleware.OutcomeUnknown)
					wantUnknownNotStored(t, a)
				}
				s.wantRuns(1)
			})
		}
	})
}
