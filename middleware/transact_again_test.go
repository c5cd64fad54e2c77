package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
)

// A database library runs the handler's transaction again, and seals again. What is committed is what the client and
// every retry get, even if that is the first attempt, whose COMMIT seemed to fail.
func TestTransactionIsSealedAgain(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			committed int   // which attempt is; 0 means none
			last      error // of the second COMMIT
			want      error // of Transact
		}{
			"the second is committed":                  {2, nil, nil},
			"the second is committed, without a reply": {2, errDown, nil},
			"the first is committed":                   {1, errDown, journal.ErrAnswered},
			"none is committed":                        {0, errDown, errDown},
		} {
			t.Run(name, func(t *testing.T) {
				modes(t, func(t *testing.T, j *memJournal) {
					s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("X-Before", "1")
						if err := sealTwice(t, w, r, j, c.committed, c.last); !errors.Is(err, c.want) {
							t.Errorf("Transact: %v, want %v", err, c.want)
						} else if err != nil {
							w.WriteHeader(http.StatusInternalServerError)
						}
					})
					first := s.send()
					s.event()
					b.FlushAll(t)
					again := s.send()
					s.event()
					want, status := map[int]string{1: "/payments/2", 2: "/payments/1"}[c.committed], http.StatusCreated
					if c.committed == 0 {
						status = http.StatusInternalServerError
					}
					for _, a := range []answer{first, again} {
						before := a.header.Get("X-Before") == "1" // no attempt keeps it
						if a.status != status || a.header.Get("Location") != want || a.body != want || before != (c.committed == 0) {
							t.Errorf("got %d %v %q, want %d %q", a.status, a.header, a.body, status, want)
						}
					}
				})
			})
		}
	})
}

// sealTwice makes two attempts at a transaction, of which at most one is committed. last is the second one's error.
func sealTwice(t *testing.T, w http.ResponseWriter, r *http.Request, j *memJournal, committed int, last error) error {
	return journal.Transact(r.Context(), func(seal func() (journal.Commit, error)) error {
		for attempt, location := range []string{"/payments/2", "/payments/1"} {
			if w.Header().Get("X-Before") != "1" || w.Header().Get("Location") != "" {
				t.Errorf("attempt %d starts with %v", attempt+1, w.Header())
			}
			w.Header().Del("X-Before")
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusCreated)
			if _, err := io.WriteString(w, location); err != nil {
				t.Errorf("Write: %v", err)
			}
			commit, err := seal()
			if err != nil {
				return err
			}
			if attempt+1 == committed {
				j.mu.Lock()
				j.store(commit.Run, commit.Record, commit.Keep)
				j.mu.Unlock()
			}
		}
		return last
	}, func(run journal.Run, _ bool) (journal.Entry, error) {
		return j.Look(r.Context(), run.Key)
	})
}

// An attempt that writes no response cannot be committed with that of the attempt before it.
func TestSecondAttemptWithoutAResponse(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				err := journal.Transact(r.Context(), func(seal func() (journal.Commit, error)) error {
					_ = created(w)
					if _, err := seal(); err != nil {
						t.Errorf("the first seal: %v", err)
					}
					_, err := seal()
					return err
				}, func(run journal.Run, _ bool) (journal.Entry, error) {
					return j.Look(r.Context(), run.Key)
				})
				if !errors.Is(err, journal.ErrNoResponse) {
					t.Errorf("Transact: %v, want ErrNoResponse", err)
				}
				w.WriteHeader(http.StatusInternalServerError)
			})
			if a := s.send(); a.status != http.StatusInternalServerError || a.body != "" {
				t.Errorf("the client got %d %q, want the 500 alone", a.status, a.body)
			}
			s.event()
		})
	})
}

// What is written after the seal does not count if the transaction is committed. If it is not, a second attempt may have
// written it and committed something else, so that the response of the first one must not be sent.
func TestWriteAfterTheSeal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for _, committed := range []bool{true, false} {
			modes(t, func(t *testing.T, j *memJournal) {
				s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
					err := journal.Transact(r.Context(), func(seal func() (journal.Commit, error)) error {
						_ = created(w)
						commit, err := seal()
						if err != nil {
							return err
						}
						if committed {
							j.mu.Lock()
							j.store(commit.Run, commit.Record, commit.Keep)
							j.mu.Unlock()
						}
						w.WriteHeader(http.StatusConflict)
						return nil
					}, func(run journal.Run, _ bool) (journal.Entry, error) { return j.Look(r.Context(), run.Key) })
					if committed && err != nil || !committed && !errors.Is(err, journal.ErrUncommitted) {
						t.Errorf("committed %t: Transact: %v", committed, err)
					}
				})
				a := s.send()
				s.event()
				switch {
				case committed && (a.status != http.StatusCreated || a.body != "created"):
					t.Errorf("%d %q, want what was committed", a.status, a.body)
				case !committed && a.problem() != "commit-unknown":
					t.Errorf("%d %q, want commit-unknown", a.status, a.body)
				}
			})
		}
	})
}
