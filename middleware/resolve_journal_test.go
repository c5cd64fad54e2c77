package middleware_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// stranded starts a site on a journal, and strands the payment k1, whose time in the journal is over.
func stranded(t *testing.T, b redistest.Backend, j *memJournal) (s *site, info lock.Info, works *atomic.Bool) {
	t.Helper()
	works = new(atomic.Bool)
	pay := payOnce()
	s, _ = journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
		if !works.Load() {
			unknown(w, r)
			return
		}
		pay(w, r)
	}, middleware.WithAtMostOnce(), middleware.WithMaxDuration(time.Second))
	info = s.strand(b, "k1")
	if j.intent {
		eventually(t, "the end of the run", func() bool { return j.look(info.Key).State == journal.Unfinished })
	}
	return s, info, works
}

func (j *memJournal) look(key string) journal.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stands(key)
}

// forgets are what Redis may still have of a run that is resolved in the journal.
var forgets = map[string]bool{"Redis knows": false, "Redis has forgotten": true}

// The journal gets the outcome, so that it stands when Redis forgets.
func TestResolveGoesThroughTheJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			for name, forgotten := range forgets {
				t.Run(name, func(t *testing.T) {
					if forgotten && !j.intent {
						t.Skip("nothing knows of the run then")
					}
					j.rows = map[string]*memRow{}
					s, info, works := stranded(t, b, j)
					works.Store(true)
					if forgotten {
						b.FlushAll(t)
					}
					header := http.Header{"Content-Type": {"application/json"}}
					said := middleware.Responded(http.StatusAccepted, header, []byte(`{"said":true}`))
					err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, said, middleware.WithJournal(j))
					if err != nil {
						t.Fatal(err)
					}
					if e := j.look(info.Key); e.State != journal.Done || len(e.Record) == 0 {
						t.Errorf("the journal has %+v", e)
					}
					for range 2 {
						a := s.send()
						if s.want(a, http.StatusAccepted, middleware.Replayed); a.body != `{"said":true}` {
							t.Errorf("body %q", a.body)
						}
						s.want(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
						b.FlushAll(t)
					}
					s.wantRuns(1)
					err = middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, said, middleware.WithJournal(j))
					if !errors.Is(err, middleware.ErrSettled) {
						t.Errorf("again: %v, want ErrSettled", err)
					}
				})
			}
		})
	})
}

func TestResolveFreesTheJournalsRow(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			for name, forgotten := range forgets {
				t.Run(name, func(t *testing.T) {
					if forgotten && !j.intent {
						t.Skip("nothing knows of the run then")
					}
					j.rows = map[string]*memRow{}
					s, info, works := stranded(t, b, j)
					works.Store(true)
					if forgotten {
						b.FlushAll(t)
					}
					if j.intent { // else a retry runs: the journal has no row
						s.want(s.send(), http.StatusConflict, middleware.OutcomeUnknown)
					}
					if forgotten {
						s.awaitFree(b) // that request releases its claim in the background
					}
					err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, middleware.NothingHappened(), middleware.WithJournal(j))
					if err != nil {
						t.Fatal(err)
					}
					s.want(s.send(), http.StatusCreated, middleware.Executed)
					s.wantRuns(2)
				})
			}
		})
	})
}

// Where the journal disagrees, or does not answer, nothing is changed.
func TestResolveHeedsTheJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, test := range map[string]struct {
			change func(j *memJournal, row *memRow)
			want   error
		}{
			"running":     {func(_ *memJournal, row *memRow) { row.until = time.Now().Add(time.Hour) }, lock.ErrLive},
			"swept":       {func(_ *memJournal, row *memRow) { row.entry.Token = "another" }, lock.ErrChanged},
			"look fails":  {func(j *memJournal, _ *memRow) { j.before = at("look", 1) }, errDown},
			"end fails":   {func(j *memJournal, _ *memRow) { j.before = at("end", 1) }, errDown},
			"swept since": {func(j *memJournal, row *memRow) { j.before = changeAt("end", j, row) }, lock.ErrChanged},
		} {
			t.Run(name, func(t *testing.T) {
				for _, said := range []middleware.Resolution{middleware.NothingHappened(), middleware.Responded(200, nil, nil)} {
					j := newJournal(true)
					s, info, _ := stranded(t, b, j)
					j.mu.Lock()
					test.change(j, j.rows[info.Key])
					j.mu.Unlock()
					err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, said, middleware.WithJournal(j))
					if !errors.Is(err, test.want) {
						t.Errorf("%v, want %v", err, test.want)
					}
					if now := s.inspect("k1"); now.State != lock.Abandoned || now.Token != info.Token {
						t.Errorf("%+v, want the claim as it was", now)
					}
					if e := j.look(info.Key); e.State == journal.Done || e.State == journal.Absent {
						t.Errorf("the journal has %+v", e)
					}
				}
			})
		}
	})
}

// changeAt returns a hook that gives the row to a sweep before the operation named.
func changeAt(op string, j *memJournal, row *memRow) func(string) error {
	return func(got string) error {
		if got == op {
			j.mu.Lock()
			defer j.mu.Unlock()
			row.entry.Token = "another"
		}
		return nil
	}
}

// Without its journal a run is not resolved: Redis alone would be told.
func TestResolveNeedsTheJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, info, _ := stranded(t, b, j)
			for _, said := range []middleware.Resolution{middleware.NothingHappened(), middleware.Responded(200, nil, nil)} {
				err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, said)
				if !errors.Is(err, middleware.ErrJournaled) {
					t.Errorf("%v, want ErrJournaled", err)
				}
			}
			if now := s.inspect("k1"); now.State != lock.Abandoned || now.Token != info.Token {
				t.Errorf("%+v, want the claim as it was", now)
			}
		})
	})
}

// The claim of a run with a journal says so in a field that an older release skips; without a journal it is as it was.
func TestClaimSaysThatThereIsAJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		const headAndTimes, formAndFingerprint = 53, 41
		note := func(s *site) string {
			info := s.strand(b, "k1")
			stored, _ := b.Raw(t, info.Key)
			return stored[headAndTimes:]
		}
		without := note(serve(t, b, unknown, middleware.WithAtMostOnce()))
		s, _ := journaled(t, b, newJournal(true), unknown, middleware.WithAtMostOnce())
		with := note(s)
		if without[formAndFingerprint:] != "\x00" || with != without[:formAndFingerprint]+"\x02\x02\x00" {
			t.Errorf("without a journal %q, with one %q", without, with)
		}
	})
}

// With other keys than the middleware's nothing is freed, in the journal neither.
func TestResolveReadsTheNoteOfTheJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, info, _ := stranded(t, b, j)
			for _, said := range []middleware.Resolution{middleware.NothingHappened(), middleware.Responded(200, nil, nil)} {
				err := middleware.Resolve(t.Context(), s.locker, info.Key, info.Token, said,
					middleware.WithJournal(j), middleware.WithEncryption(make([]byte, 32)))
				if !errors.Is(err, middleware.ErrUnreadable) {
					t.Errorf("%v, want ErrUnreadable", err)
				}
				if e := j.look(info.Key); j.intent && e.State != journal.Unfinished {
					t.Errorf("the journal has %+v", e)
				}
				if now := s.inspect("k1"); now.State != lock.Abandoned || now.Token != info.Token {
					t.Errorf("%+v, want the claim as it was", now)
				}
			}
		})
	})
}
