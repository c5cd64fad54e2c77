package sqljournal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

func TestSweepHandsOutTheOldestFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		runs := unfinishedRows(t, d, db, 3)
		young, living := newRun(time.Hour), begin(t, j, newRun(time.Hour))
		insertRow(t, d, db, young.Key, young.Token, 1, sqljournal.JoinNote(young.Note, nil), nil, -time.Minute)
		othersDone.put(t, d, db, newRun(time.Hour))

		var notes []string
		failed := errors.New("the provider does not answer")
		n, err := j.Sweep(t.Context(), 10*time.Minute, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the context has no end")
			}
			if u.Attempts != 1 || time.Since(u.Began).Abs() > time.Minute {
				t.Errorf("handed out for the %dth time, began %v ago", u.Attempts, time.Since(u.Began))
			}
			notes = append(notes, string(u.Note))
			switch u.Key {
			case runs[0].Key:
				return u.Done(ctx, db, time.Hour, nil)
			case runs[1].Key:
				return u.Free(ctx, db)
			}
			return failed
		})
		mustFail(t, "Sweep", err, failed)
		if want := []string{"order 0", "order 1", "order 2"}; n != 3 || !slices.Equal(notes, want) {
			t.Errorf("got %d, %q, want %q", n, notes, want)
		}
		mustLook(t, j, runs[0].Key, journal.Done, "")
		mustLook(t, j, runs[1].Key, journal.Absent, "")
		mustLook(t, j, runs[2].Key, journal.Unfinished, "")
		mustLook(t, j, young.Key, journal.Unfinished, "")
		mustLook(t, j, living.Key, journal.Running, "")
	})
}

// A row that nobody has ended is handed out again when its lease is over, without another grace, but not twice in one sweep, even
// if that takes longer than its lease. The one who had it first can then no longer end it.
func TestSweepAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		unfinishedRows(t, d, db, 2)
		sweep := func(lease time.Duration, fn func(context.Context, sqljournal.Unfinished)) {
			t.Helper()
			n, err := j.Sweep(t.Context(), 10*time.Minute, lease, func(ctx context.Context, u sqljournal.Unfinished) error {
				fn(ctx, u)
				return nil
			})
			if n != 2 || err != nil {
				t.Errorf("Sweep: got %d, %v, want 2", n, err)
			}
		}
		first := map[string]sqljournal.Unfinished{}
		sweep(time.Microsecond, func(_ context.Context, u sqljournal.Unfinished) {
			if _, again := first[u.Key]; again {
				t.Fatal("a row is handed out again")
			}
			first[u.Key] = u
			eventually(t, "the end of the lease", func() bool {
				i, err := j.Inspect(t.Context(), u.Key)
				return err == nil && i.State == journal.Unfinished && i.Left < 0
			})
		})
		sweep(time.Hour, func(ctx context.Context, u sqljournal.Unfinished) {
			before := first[u.Key]
			if u.Attempts != 2 || string(u.Note) != string(before.Note) {
				t.Errorf("got attempt %d, note %q", u.Attempts, u.Note)
			}
			mustFail(t, "Done of the first", before.Done(ctx, db, time.Hour, nil), sqljournal.ErrLost)
			mustFail(t, "Free of the first", before.Free(ctx, db), sqljournal.ErrLost)
			mustFail(t, "Done", u.Done(ctx, db, time.Hour, nil), nil)
			mustFail(t, "Done once more", u.Done(ctx, db, time.Hour, nil), sqljournal.ErrLost)
		})
		if _, err := j.Sweep(t.Context(), 0, 0, nil); err == nil {
			t.Error("a lease of 0 is taken")
		}
	})
}

// Eight sweepers hand out each of two hundred rows once.
func TestManySweepers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		const rows, sweepers = 200, 8
		j, db := modes["intent"](d, t), d.Open(t)
		unfinishedRows(t, d, db, rows)
		var mu sync.Mutex
		handed := map[string]int{}
		var sweeping sync.WaitGroup
		for range sweepers {
			sweeping.Go(func() {
				_, err := j.Sweep(t.Context(), 0, time.Hour, func(_ context.Context, u sqljournal.Unfinished) error {
					mu.Lock()
					defer mu.Unlock()
					if handed[u.Key]++; handed[u.Key] > 1 {
						t.Errorf("%s is handed out again", u.Key)
					}
					return nil
				})
				mustFail(t, "Sweep", err, nil)
			})
		}
		sweeping.Wait()
		if len(handed) != rows {
			t.Errorf("handed out %d rows, want %d", len(handed), rows)
		}
	})
}

// A row whose run has its transaction open is left out, and that transaction commits.
func TestSweepSkipsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		s := newScene(t, d, "intent")
		expireLimit(t, d, s.db, s.run)
		other := unfinishedRows(t, d, s.db, 1)[0]
		s.mustBeCommitted(aroundSQL(s, func(err error) error {
			mustSweep(t, s.j, 1, func(_ context.Context, u sqljournal.Unfinished) error {
				if u.Key != other.Key {
					t.Errorf("handed out %q, want %q", u.Key, other.Key)
				}
				return nil
			})
			return err
		}))
	})
}

func TestNote(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		s := newScene(t, d, "intent")
		for _, note := range []string{"draft", "order 7", "order 8", "order 8"} {
			mustFail(t, "Note", s.j.Note(s.ctx, []byte(note)), nil)
		}
		if err := s.j.Note(s.ctx, make([]byte, 4097)); err == nil {
			t.Error("a note that is too long is taken")
		}
		mustLook(t, s.j, s.run.Key, journal.Running, "") // with the middleware's own note
		expireLimit(t, d, s.db, s.run)
		mustSweep(t, s.j, 1, func(_ context.Context, u sqljournal.Unfinished) error {
			if string(u.Note) != "order 8" {
				t.Errorf("got the note %q", u.Note)
			}
			return nil
		})
		mustFail(t, "after its row was handed out", s.j.Note(s.ctx, []byte("late")), sqljournal.ErrLost)
		mustFail(t, "outside of a run", s.j.Note(t.Context(), []byte("order 9")), nil)

		other := newScene(t, d, "transactional")
		if err := other.j.Note(other.ctx, []byte("order 9")); err == nil {
			t.Error("a transactional run takes a note")
		}
	})
}

func FuzzSplitNote(f *testing.F) {
	for _, note := range [][]byte{nil, {0}, {1}, {1, 'a'}, {1, 'a', 'b'}, {0x80}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		f.Add(note)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		middlewares, handlers, err := sqljournal.SplitNote(b)
		if err != nil {
			return
		}
		m, h, err := sqljournal.SplitNote(sqljournal.JoinNote(middlewares, handlers))
		if err != nil || !slices.Equal(m, middlewares) || !slices.Equal(h, handlers) {
			t.Errorf("%q: got %q and %q, %v, want %q and %q", b, m, h, err, middlewares, handlers)
		}
	})
}

// A row whose note is damaged is handed out, and does not tell whose request it is. What a sweep stores in it has a fingerprint
// that no door can read, so that nobody gets it.
func TestSweptRowWithADamagedNote(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for _, note := range []string{"null", "''", "'z'"} {
			j, db := modes["intent"](d, t), d.Open(t)
			run := unfinishedRows(t, d, db, 1)[0]
			mustExec(t, db, "update onceguard_journal set note = "+note+" where state = 1")
			n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
				return u.Done(ctx, db, time.Hour, []byte("found out"))
			})
			if n != 1 || err == nil {
				t.Errorf("Sweep: %d, %v, want one row, and that its note is damaged", n, err)
			}
			if e, err := j.Look(t.Context(), run.Key); err != nil || string(e.Note) != "\x00" || string(e.Record) != "found out" {
				t.Errorf("%+v, %v, want a fingerprint that cannot be read", e, err)
			}
		}
	})
}

func TestExpire(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["transactional"](d, t), d.Open(t)
		expired := make([]string, 2500)
		for i := range expired {
			past := fmt.Sprintf("%s - %s", d.Now(), d.Interval(time.Duration(i+1)*time.Second))
			expired[i] = fmt.Sprintf("('%s:{0000}old%d', '%s', 2, null, null, %s, null, %s, 0, null, null)", namespace, i, uuid.NewString(), past, past)
		}
		mustExec(t, db, "insert into onceguard_journal values "+strings.Join(expired, ", "))
		for _, s := range []standing{ownBegun, othersUnfished, othersDone} {
			s.put(t, d, db, newRun(time.Hour))
		}
		for _, want := range []int64{2500, 0} {
			if n, err := j.Expire(t.Context()); n != want || err != nil {
				t.Errorf("Expire: got %d, %v, want %d", n, err, want)
			}
		}
		mustCount(t, db, 3, "onceguard_journal")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := j.Expire(ctx)
		mustFail(t, "without time", err, context.Canceled)
	})
}

// handedOut is the run of a scene whose row a sweep has.
type handedOut struct {
	*scene
	u sqljournal.Unfinished
}

func handOut(t *testing.T, d dbtest.Database) *handedOut {
	t.Helper()
	h := &handedOut{scene: newScene(t, d, "intent")}
	expireLimit(t, d, h.db, h.run)
	mustSweep(t, h.j, 1, func(_ context.Context, u sqljournal.Unfinished) error {
		h.u = u
		return nil
	})
	return h
}

// orNone returns the bytes of a record, or none.
func orNone(record string) []byte {
	if record == "" {
		return nil
	}
	return []byte(record)
}

// done calls Done. The outcome is a record, or none.
func (h *handedOut) done(record string) error {
	return h.u.Done(h.Context(), h.db, time.Hour, orNone(record))
}

// end calls End. The outcome is a record, or none to free the row.
func (h *handedOut) end(run journal.Run, record string) (journal.Entry, error) {
	return h.j.End(h.Context(), run, orNone(record), time.Hour)
}

// mustEnd calls End, and checks what stands then.
func (h *handedOut) mustEnd(run journal.Run, record string, state journal.State, stands string) {
	h.Helper()
	e, err := h.end(run, record)
	mustBe(h, "End with "+record, e, err, state, stands)
	mustLook(h, h.j, run.Key, state, stands)
}

// A run can neither complete nor free a row that is handed out, nor begin. A row that is then done without a record takes the
// run's, once, and no other run's. A record that the sweep's function has found out stays, and its row has the run's token and
// fingerprint. What an operator has found out counts in any case.
func TestRowThatWasHandedOut(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for name, test := range map[string]func(h *handedOut){
			"handed out": func(h *handedOut) {
				for _, record := range []string{"late", ""} {
					_, err := h.end(h.run, record)
					mustFail(h, "End", err, journal.ErrHandedOut)
				}
				e, err := h.j.Begin(h.Context(), h.run)
				mustBe(h, "Begin", e, err, journal.Unfinished, "")
				for _, keep := range []time.Duration{0, -time.Hour} { // the next retry would run
					if err := h.u.Done(h.Context(), h.db, keep, nil); err == nil {
						h.Errorf("Done for %v has not failed", keep)
					}
				}
				mustLook(h, h.j, h.run.Key, journal.Unfinished, "")
			},
			"done without a record": func(h *handedOut) {
				mustFail(h, "Done", h.done(""), nil)
				if e, err := h.j.Look(h.Context(), h.run.Key); err != nil || e.Token != h.run.Token || string(e.Note) != "fingerprint" {
					h.Errorf("done: %+v, %v, want the run's token and its note", e, err)
				}
				h.mustEnd(h.run, "", journal.Done, "")
				h.mustEnd(retried(h.run), "stranger's", journal.Done, "")
				h.mustEnd(h.run, "late", journal.Done, "late")
				h.mustEnd(h.run, "later", journal.Done, "late")
			},
			"done with a record": func(h *handedOut) {
				mustFail(h, "Done", h.done("found out"), nil)
				h.mustEnd(h.run, "late", journal.Done, "found out")
				if e, err := h.j.Look(h.Context(), h.run.Key); err != nil || e.Token != h.run.Token || string(e.Note) != "fingerprint" {
					h.Errorf("done: %+v, %v, want the run's token and its note", e, err)
				}
			},
			"free": func(h *handedOut) {
				mustFail(h, "Free", h.u.Free(h.Context(), h.db), nil)
				h.mustEnd(h.run, "late", journal.Absent, "")
			},
			"resolved, responded":        func(h *handedOut) { h.mustResolve("said", journal.Done) },
			"resolved, nothing happened": func(h *handedOut) { h.mustResolve("", journal.Absent) },
		} {
			t.Run(name, func(t *testing.T) {
				test(handOut(t, d))
			})
		}
	})
}

// mustResolve resolves the row, whose sweep then fails.
func (h *handedOut) mustResolve(record string, state journal.State) {
	h.Helper()
	h.run.Resolved = true
	h.mustEnd(h.run, record, state, record)
	mustFail(h, "Done", h.done(""), sqljournal.ErrLost)
	mustFail(h, "Free", h.u.Free(h.Context(), h.db), sqljournal.ErrLost)
	mustLook(h, h.j, h.run.Key, state, record)
}

// The function of a sweep, the late run and an operator end the same row at the same time. One of their outcomes stands, and
// only that one was told that it does.
func TestOneOfThemEndsTheRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for range 20 {
			h := handOut(t, d)
			operator := h.run
			operator.Resolved = true
			told, errs := map[string]*string{}, map[string]*error{} // what each was told to stand
			var ending sync.WaitGroup
			for name, run := range map[string]journal.Run{"sweep": {}, "run": h.run, "operator": operator} {
				record, err := new(string), new(error)
				told[name], errs[name] = record, err
				ending.Go(func() {
					if name == "sweep" {
						*record, *err = name, h.done(name)
						return
					}
					e, failed := h.end(run, name)
					*record, *err = string(e.Record), failed
				})
			}
			ending.Wait()
			e, err := h.j.Look(t.Context(), h.run.Key)
			if err != nil || e.State != journal.Done || e.Token != h.run.Token || errs[string(e.Record)] == nil || *errs[string(e.Record)] != nil {
				t.Errorf("%v %q stands, %v", e.State, e.Record, err)
			}
			for name, err := range errs {
				isLate := errors.Is(*err, sqljournal.ErrLost) || errors.Is(*err, journal.ErrHandedOut)
				if *err == nil && *told[name] != string(e.Record) || *err != nil && !isLate {
					t.Errorf("%s was told that %q stands, %v, and %q does", name, *told[name], *err, e.Record)
				}
			}
		}
	})
}
