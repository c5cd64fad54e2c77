package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// payInTx answers 201, and another body at each run, in a transaction. If that fails it answers 500 with the error.
func payInTx(j *memJournal) http.HandlerFunc {
	pay := payOnce()
	return func(w http.ResponseWriter, r *http.Request) {
		if err := j.inTx(r.Context(), func() error { pay(w, r); return nil }); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// journaled starts a site with the journal, whose Redis is asked through a proxy.
func journaled(t *testing.T, b redistest.Backend, j *memJournal, h http.HandlerFunc, opts ...middleware.Option) (*site, *redistest.Proxy) {
	t.Helper()
	b.FlushAll(t)
	proxy := redistest.NewProxy(t, b.Addr())
	return serveOn(t, newLocker(t, proxy.Client(t)), h, append(opts, middleware.WithJournal(j))...), proxy
}

// A run outside of a transaction that fails after it has sent something is not repeated, and a duplicate is not told that
// it was processed, by Redis or by the journal.
func TestJournalKnowsOfAnUnknownOutcome(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s, _ := journaled(t, b, newJournal(false), func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		_, _ = s.try(s.request(noRetry)) // its connection breaks
		s.wantEvents(middleware.Panicked)
		for range 2 {
			a := s.send()
			s.want(a, http.StatusConflict, middleware.OutcomeUnknown)
			wantUnknownNotStored(t, a)
			b.FlushAll(t)
		}
		s.wantRuns(1)
	})
}

// Whatever Redis forgets, the journal knows.
func TestRedisForgets(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, h := range map[string]func(*memJournal) http.HandlerFunc{
			"in a transaction": payInTx,
			"outside":          func(*memJournal) http.HandlerFunc { return payOnce() },
		} {
			t.Run(name, func(t *testing.T) {
				modes(t, func(t *testing.T, j *memJournal) {
					s, _ := journaled(t, b, j, h(j))
					first := s.send()
					s.want(first, http.StatusCreated, middleware.Executed)
					for range 2 { // from the journal, and then from Redis again
						b.FlushAll(t)
						for range 2 {
							again := s.send()
							s.want(again, http.StatusCreated, middleware.Replayed)
							if again.body != first.body || !again.replayed() {
								t.Errorf("got %+v, want %+v", again, first)
							}
						}
					}
					if j.calls["begin"] != 3 {
						t.Errorf("%d calls of Begin, want 3: a replay from Redis needs none", j.calls["begin"])
					}
					s.wantRuns(1)
					b.FlushAll(t)
					s.want(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
				})
			})
		}
	})
}

// fault: a handler has its effect outside of the journal's transaction.
// Expected: the Event says that only Redis protects it. Of a 4xx, which has no effect, it does not say so.
func TestAnswerOutsideOfTheTransaction(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			status := 0
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			for status = range map[int]bool{200: true, 201: true, 303: true, 400: false, 422: false, 499: false} {
				e := s.want(s.send(key(fmt.Sprint("k", status))), status, middleware.Executed)
				if got := errors.Is(e.Err, run.ErrOutsideTx); got != (!j.intent && status < 400) || !got && e.Err != nil {
					t.Errorf("%d: error %v", status, e.Err)
				}
			}
		})
	})
}

// A run under a journal goes on when Redis forgets it, and what it commits stands.
func TestRedisForgetsUnderARun(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				b.FlushAll(t)
				if r.Context().Err() != nil {
					t.Error("the run has ended")
				}
				payInTx(j)(w, r)
			})
			first := s.send()
			s.want(first, http.StatusCreated, middleware.Executed)
			again := s.send()
			s.want(again, http.StatusCreated, middleware.Replayed)
			s.wantRuns(1)
			j.want(t, 1, 1)
		})
	})
}

// Without Redis the journal alone decides, and Redis is asked once a second at most.
func TestJournalWithoutRedis(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			g := newGate()
			s, proxy := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "slow" {
					g.pass()
				}
				payInTx(j)(w, r)
			})
			proxy.CutBefore(redistest.Any())
			for _, want := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
				if e := s.want(s.send(), http.StatusCreated, want); e.Err == nil {
					t.Errorf("%s: the event does not say that Redis did not answer", want)
				}
			}
			s.want(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
			slow := []edit{key("slow"), target("/payments?slow")}
			done := s.inBackground(g, slow...)
			if j.intent {
				s.want(s.send(slow...), http.StatusConflict, middleware.InFlight)
				s.want(s.send(append(slow, body("text/plain", "other"))...), http.StatusUnprocessableEntity, middleware.Reused)
				close(g.open)
				s.want(<-done, http.StatusCreated, middleware.Executed)
				j.want(t, 2, 2)
				return
			}
			second := s.inBackground(g, slow...) // nothing tells it from the first
			close(g.open)
			a, other := <-done, <-second
			if a.status != http.StatusCreated || other.body != a.body || a.replayed() == other.replayed() {
				t.Errorf("got %+v and %+v, want one response and its replay", a, other)
			}
			j.want(t, 2, 2)
		})
	})
}

// Nothing runs before the journal has said that it may.
func TestJournalIsDownAtBegin(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, payInTx(j))
			j.setHooks(at("begin", -1), nil)
			a := s.send()
			if e := s.want(a, http.StatusServiceUnavailable, middleware.StoreUnavailable); !errors.Is(e.Err, errDown) {
				t.Errorf("error %v", e.Err)
			}
			s.wantRuns(0)
			j.setHooks(nil, nil)
			s.awaitFree(b)
			s.want(s.send(), http.StatusCreated, middleware.Executed)

			j.setHooks(at("begin", -1), nil) // what Redis has needs no journal
			s.want(s.send(), http.StatusCreated, middleware.Replayed)
		})
	})
}

// eventually polls until done reports true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	poll, deadline := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer poll.Stop()
	for !done() {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatal("waited in vain for ", what)
		}
	}
}

// What an earlier run has left in the journal answers a request that Redis does not know.
func TestWhatTheJournalHolds(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		j := newJournal(true)
		s, _ := journaled(t, b, j, payInTx(j))
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		var row *memRow
		for _, row = range j.rows {
		}
		for name, c := range map[string]struct {
			entry   journal.Entry
			until   time.Duration
			status  int
			problem string
			outcome middleware.Outcome
		}{
			"running":     {journal.Entry{State: journal.Running, Note: j.note}, time.Hour, 409, "in-flight", middleware.InFlight},
			"unfinished":  {journal.Entry{State: journal.Running, Note: j.note}, -time.Second, 409, "outcome-unknown", middleware.OutcomeUnknown},
			"no response": {journal.Entry{State: journal.Done}, 0, 409, "response-not-stored", middleware.NotReplayable},
			"damaged":     {journal.Entry{State: journal.Done, Record: []byte("damaged")}, 0, 500, "record-unreadable", middleware.Unreadable},
		} {
			t.Run(name, func(t *testing.T) {
				b.FlushAll(t)
				c.entry.Token = "another"
				*row = memRow{entry: c.entry, until: time.Now().Add(c.until), expires: time.Now().Add(time.Hour)}
				a := s.send()
				s.want(a, c.status, c.outcome)
				if a.problem() != c.problem {
					t.Errorf("problem %q, want %q", a.problem(), c.problem)
				}
				s.awaitFree(b)
			})
		}
		s.wantRuns(1)
	})
}

// A response that the journal cannot store goes out, and is stored when it can be.
func TestJournalIsDownAtEnd(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, payOnce())
			var down atomic.Bool
			down.Store(true)
			j.setHooks(func(op string) error {
				if op == "end" && down.Load() {
					return errDown
				}
				return nil
			}, nil)
			first := s.send()
			if e := s.want(first, http.StatusCreated, middleware.NotStored); !e.Pending || !errors.Is(e.Err, errDown) {
				t.Errorf("%+v, want it to be pending", e)
			}
			s.want(s.send(), http.StatusConflict, middleware.InFlight)
			down.Store(false)
			eventually(t, "the replay", func() bool {
				a := s.send()
				s.event()
				return a.replayed() && a.body == first.body
			})
			s.wantRuns(1)
			b.FlushAll(t)
			s.want(s.send(), http.StatusCreated, middleware.Replayed)
		})
	})
}

// A status that is not stored frees the key: an intent journal has seen it through.
func TestFreedInTheJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, h := range map[string]http.HandlerFunc{
			"by its status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
			"by Discard": func(w http.ResponseWriter, r *http.Request) {
				if err := middleware.FromContext(r.Context()).Discard(); err != nil {
					t.Error(err)
				}
				w.WriteHeader(http.StatusNotFound)
			},
		} {
			t.Run(name, func(t *testing.T) {
				modes(t, func(t *testing.T, j *memJournal) {
					s, _ := journaled(t, b, j, h)
					for range 2 {
						s.want(s.send(), http.StatusNotFound, middleware.Freed)
						j.want(t, 0, 0)
					}
					s.wantRuns(2)
				})
			})
		}
	})
}

// An intent journal keeps a 5xx, and does not let a run begin again after a panic. A transactional one has nothing of it.
func TestUnknownOutcomeInTheJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "panic" {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(http.StatusInternalServerError)
			})
			want := middleware.Executed
			if !j.intent {
				want = middleware.Freed
			}
			s.want(s.send(), http.StatusInternalServerError, want)

			if _, err := s.try(s.request(key("p"), target("/payments?panic"))); err == nil {
				t.Error("the panic did not reach the client")
			}
			if e := s.event(); e.Outcome != middleware.Panicked {
				t.Errorf("outcome %s", e.Outcome)
			}
			b.FlushAll(t)
			_, err := s.try(s.request(key("p"), target("/payments?panic")))
			e := s.event()
			switch {
			case j.intent && (err != nil || e.Outcome != middleware.InFlight):
				t.Errorf("%v, %s; want a 409", err, e.Outcome)
			case !j.intent && (err == nil || e.Outcome != middleware.Panicked):
				t.Errorf("%v, %s; want another run", err, e.Outcome)
			}
		})
	})
}

// What Redis calls abandoned may be done in the journal.
func TestAbandonedInRedis(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		j := newJournal(false)
		s, _ := journaled(t, b, j, payInTx(j))
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		var storageKey string
		for storageKey = range j.rows {
		}
		abandon := func() { // as an instance with WithAtMostOnce does that dies
			b.FlushAll(t)
			g := serve(t, b, func(_ http.ResponseWriter, r *http.Request) {
				middleware.FromContext(r.Context()).Unknown()
			}, middleware.WithAtMostOnce())
			g.want(g.send(), http.StatusOK, middleware.Unknown)
			b.Elapse(t, leaseTTL)
		}
		abandon()
		a := s.send()
		s.want(a, http.StatusCreated, middleware.Replayed)
		delete(j.rows, storageKey)
		a = s.send()
		s.want(a, http.StatusConflict, middleware.OutcomeUnknown)
		j.setHooks(at("look", -1), nil)
		s.want(s.send(), http.StatusServiceUnavailable, middleware.StoreUnavailable)
		s.wantRuns(1)
	})
}

// With both options Redis is needed, too: its holds are for the instances that have no journal yet.
func TestJournalBesideAtMostOnce(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		j := newJournal(false)
		s, proxy := journaled(t, b, j, payInTx(j), middleware.WithAtMostOnce())
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		b.FlushAll(t)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		proxy.CutBefore(redistest.Any())
		s.want(s.send(key("k2")), http.StatusServiceUnavailable, middleware.StoreUnavailable)
		s.wantRuns(1)
		j.want(t, 1, 1)
	})
}

// fault: an instance with the journal and WithAtMostOnce dies before the journal has its outcome, or a sweep frees its row.
// Expected: the hold in Redis does not keep the key, since the journal has no row. A retry runs, and one that only waits
// is told that it may. The hold of an instance without the journal is kept.
func TestNoRowBesideAtMostOnce(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			dies, pay := true, payInTx(j)
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				if dies {
					middleware.FromContext(r.Context()).Unknown()
					return
				}
				pay(w, r)
			}, middleware.WithAtMostOnce())
			s.want(s.send(), http.StatusOK, middleware.Unknown)
			if j.intent {
				b.Elapse(t, leaseTTL)
				s.want(s.send(), http.StatusConflict, middleware.InFlight) // its row
				j.mu.Lock()
				clear(j.rows) // as a sweep does
				j.mu.Unlock()
			} else {
				s.want(s.send(), http.StatusConflict, middleware.InFlight) // its lease
				b.Elapse(t, leaseTTL)
			}
			dies = false
			s.want(s.send(body("text/plain", "another")), http.StatusUnprocessableEntity, middleware.Reused)
			s.want(s.send(), http.StatusCreated, middleware.Executed)
			s.want(s.send(), http.StatusCreated, middleware.Replayed)
			s.wantRuns(2)
			j.want(t, 1, 1)

			old := serve(t, b, func(_ http.ResponseWriter, r *http.Request) {
				middleware.FromContext(r.Context()).Unknown()
			}, middleware.WithAtMostOnce())
			old.want(old.send(key("old")), http.StatusOK, middleware.Unknown)
			b.Elapse(t, leaseTTL)
			s.want(s.send(key("old")), http.StatusConflict, middleware.OutcomeUnknown)
		})
	})
}

// Another run's record that End meets is the answer, as long as no byte has left.
func TestOvertakenAtEnd(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for _, flush := range []bool{false, true} {
			j, g := newJournal(false), newGate()
			n := atomic.Int64{}
			h := func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) == 1 {
					g.pass()
					w.WriteHeader(http.StatusAccepted)
					if flush {
						_ = http.NewResponseController(w).Flush()
					}
				}
				_, _ = io.WriteString(w, "receipt "+string(rune('0'+n.Load())))
			}
			s, _ := journaled(t, b, j, h)
			done := s.inBackground(g)
			b.FlushAll(t)
			other := s.send()
			s.want(other, http.StatusOK, middleware.Executed)
			close(g.open)
			a := <-done
			if flush {
				s.want(a, http.StatusAccepted, middleware.LeaseLost)
			} else {
				e := s.want(a, http.StatusOK, middleware.LeaseLost)
				if a.body != other.body || !a.replayed() || e.Err == nil || !strings.Contains(e.Err.Error(), "answered 202") {
					t.Errorf("got %+v, %v; want the other run's response", a, e.Err)
				}
			}
			b.FlushAll(t)
		}
	})
}

func TestJournalOptions(t *testing.T) {
	others := lock.New(redistest.Mini(t).Client(t), "test2")
	for name, build := range map[string]func(){
		"nil": func() { middleware.WithJournal(nil) },
		"with WithFailOpen": func() {
			middleware.Idempotency(new(lock.Locker), fixedKey, middleware.WithJournal(newJournal(true)), middleware.WithFailOpen())
		},
		"of another namespace": func() { middleware.Idempotency(others, fixedKey, middleware.WithJournal(newJournal(true))) },
		"of another namespace, in Resolve": func() {
			_ = middleware.Resolve(t.Context(), others, "key", "token", middleware.NothingHappened(), middleware.WithJournal(newJournal(true)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "middleware.WithJournal: ") {
					t.Errorf("panic %q", text)
				}
			}()
			build()
		})
	}
}
