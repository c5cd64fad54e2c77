package run_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// What the journal has of another run is what a request gets that has claimed the key, and what Redis gets, if it is a
// record that lasts. Otherwise the key is freed.
func TestYield(t *testing.T) {
	t.Parallel()
	note := noteOf(lock.None("test"), 1)
	brief := func(left time.Duration) journal.Entry {
		e := theirs()
		e.Left = left
		return e
	}
	broken := theirs()
	broken.Record = []byte("x")
	for name, test := range map[string]struct {
		entry   journal.Entry
		kind    run.Kind
		settles bool
	}{
		"a record":                        {theirs(), run.Stored, true},
		"a record, its last millisecond":  {brief(time.Millisecond), run.Stored, true},
		"a record that expires":           {brief(time.Millisecond - 1), run.Stored, false},
		"a record that cannot be read":    {broken, run.Unreadable, false},
		"no record":                       {journal.Entry{State: journal.Done, Token: "another", Left: time.Hour}, run.NotKept, false},
		"a run":                           {journal.Entry{State: journal.Running, Token: "another", Note: note}, run.InFlight, false},
		"a run, and no note":              {journal.Entry{State: journal.Running, Token: "another"}, run.Unreadable, false},
		"a run without an outcome":        {journal.Entry{State: journal.Unfinished, Token: "another", Note: note}, run.UnknownYet, false},
		"a run, and a note of the future": {journal.Entry{State: journal.Running, Token: "another", Note: []byte("x")}, run.Unreadable, false},
	} {
		for when, atEnd := range map[string]bool{"at the begin": false, "at the end": true, "at the end, sent": true} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				s := &standing{}
				client := redistest.Mini(t).Client(t)
				g, locker := newGuardOn(t, client, func(p *run.Policy) { p.Journal = s })
				req, p := request(1), &product{keeps: true, sent: strings.HasSuffix(when, "sent"), body: "mine"}
				var result run.Result
				if atEnd {
					r := runOf(t, g, req)
					r.Start(p)
					s.entry = test.entry
					r.CutOff()
					result = r.Conclude(run.Ending{How: run.Whole})
					if result.Outcome != run.OutcomeLeaseLost || !strings.Contains(result.Err.Error(), "the record of another run") ||
						result.Settle.Start.IsZero() || p.sent == strings.Contains(result.Err.Error(), "this one made mine") {
						t.Errorf("%+v", result)
					}
				} else {
					s.entry = test.entry
					result = g.Begin(t.Context(), req)
				}
				if req.Phases.Journal.Start.IsZero() {
					t.Errorf("%+v", req.Phases)
				}
				if p.sent {
					want(t, result, run.Own, run.OutcomeLeaseLost)
					wantFree(t, locker)
					return
				}
				if result.Kind != test.kind {
					t.Errorf("%+v, want %v", result, test.kind)
				}
				if !test.settles {
					wantFree(t, locker)
				} else if test.entry.Left == time.Hour {
					if claim, err := locker.Look(t.Context(), "k"); err != nil || string(claim.Value) != string(test.entry.Record) {
						t.Errorf("%+v, %v", claim, err)
					}
				}
			})
		}
	}
}

// A record that the journal has counts, whatever becomes of the key.
func TestLostKeyWithAJournal(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	j := &fakeJournal{intent: true}
	g, locker := newGuardOn(t, mini.Client(t), func(p *run.Policy) { p.Journal = j })
	r, _ := begin(t, g, &product{keeps: true, body: "b"})
	r.CutOff()
	theft{t, mini.Client(t), nil, locker.StorageKey("k")}.put(request(1).Fingerprints[0], false)
	result := r.Conclude(run.Ending{How: run.Whole})
	want(t, result, run.Own, run.OutcomeExecuted)
	if !errors.Is(result.Err, lock.ErrLost) || result.Size != len(j.ended[0].Record) {
		t.Errorf("%v, size %d", result.Err, result.Size)
	}
}

// A late End may find a record that has a fingerprint. It is stored as it is.
func TestLateEndFindsAWholeRecord(t *testing.T) {
	t.Parallel()
	s := &standing{fails: true}
	g, locker := newGuard(t, func(p *run.Policy) { p.Journal = s })
	if err := conclude(t, g, &product{keeps: true}).Err; !errors.Is(err, lock.ErrPending) {
		t.Errorf("%v, want that it is pending", err)
	}
	s.mu.Lock()
	s.fails, s.entry = false, theirs()
	s.mu.Unlock()
	if claim, err := locker.Wait(t.Context(), "k"); err != nil || string(claim.Value) != string(s.entry.Record) {
		t.Errorf("%+v, %v", claim, err)
	}
}
