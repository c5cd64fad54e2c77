package sqljournal_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// onlyPrefix replaces the random part of a token.
func onlyPrefix(token, random string) string {
	if cut := len(token) - len(random); cut >= 0 && token[cut:] == random {
		return token[:cut] + "*"
	}
	return token
}

func TestInspectAndScan(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		var wantScan []string
		for _, test := range []struct {
			state   int
			record  []byte
			left    time.Duration
			want    sqljournal.Info
			scanned bool
		}{
			{1, nil, -time.Hour, sqljournal.Info{State: unfinished, Token: "*", Note: []byte("order 7")}, true},
			{1, nil, time.Hour, sqljournal.Info{State: running, Token: "*", Note: []byte("order 7")}, true},
			{2, nil, time.Hour, sqljournal.Info{State: done, Token: "unanswered-*"}, true},
			{2, []byte("stored"), time.Hour, sqljournal.Info{State: done, Token: "done-*", Response: true, Size: 6}, false},
			{2, []byte("stored"), -time.Minute, sqljournal.Info{State: absent}, false},
			{2, nil, -time.Minute, sqljournal.Info{State: absent}, false},
		} {
			run := newRun(time.Hour)
			insertRow(t, d, db, run.Key, run.Token, test.state, sqljournal.JoinNote(run.Note, []byte("order 7")), test.record, test.left)
			got, err := j.Inspect(t.Context(), run.Key)
			if err != nil {
				t.Fatal(err)
			}
			if got.State != absent && ((got.Left-test.left).Abs() > time.Minute || time.Since(got.Began).Abs() > time.Minute) {
				t.Errorf("%+v: left %v, want %v; began %v ago", test.want, got.Left, test.left, time.Since(got.Began))
			}
			if test.scanned {
				wantScan = append(wantScan, run.Key)
			}
			got.Token = onlyPrefix(got.Token, run.Token)
			if got.State != absent && got.Run != run.Token {
				t.Errorf("%+v: the token of the run is %q, want %q", test.want, got.Run, run.Token)
			}
			if got.Key != run.Key || got.State != test.want.State || got.Token != test.want.Token || got.Attempts != 0 ||
				got.Response != test.want.Response || got.Size != test.want.Size || string(got.Note) != string(test.want.Note) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		}
		other := newRun(time.Hour)
		insertRow(t, d, db, "other"+other.Key, other.Token, 1, sqljournal.JoinNote(nil, nil), nil, -time.Hour)
		scanned, err := j.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range scanned {
			got = append(got, i.Key)
		}
		if !slices.Equal(got, wantScan) {
			t.Errorf("scan: got %q, want %q", got, wantScan)
		}
		missing, err := j.Inspect(t.Context(), newRun(time.Hour).Key)
		if err != nil || missing.State != absent || missing.Token != "" {
			t.Errorf("without a row: %+v, %v", missing, err)
		}
	})
}

func leave(context.Context, sqljournal.Unfinished) error { return nil }

// A sweep that has a row shows: nothing runs, and there is time left.
func TestInspectOfASweptRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		run := unfinishedRows(t, d, db, 1)[0]
		if n, err := j.Sweep(t.Context(), 0, time.Hour, leave); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		got, err := j.Inspect(t.Context(), run.Key)
		if err != nil || got.State != journal.Unfinished || got.Left <= 0 || got.Attempts != 1 || got.Token != run.Token {
			t.Errorf("%+v, %v", got, err)
		}
		mustFail(t, "Forget", j.Forget(t.Context(), run.Key, got.Token, false), sqljournal.ErrRunning)
		e, err := j.Look(t.Context(), run.Key)
		mustBe(t, "Look", e, err, journal.Unfinished, "")
		if e.Left <= 0 || e.Left > time.Hour {
			t.Errorf("Look: handed out for %v, want up to an hour", e.Left)
		}
	})
}

func TestForget(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		for _, s := range []standing{othersRunning, othersUnfished, othersDone, othersTombstone} {
			run := newRun(time.Hour)
			s.put(t, d, db, run)
			i, err := j.Inspect(t.Context(), run.Key)
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range []string{"", "value-" + i.Token, "done-" + i.Token, "unanswered-" + i.Token, run.Token} {
				mustFail(t, string(s)+" by "+wrong, j.Forget(t.Context(), run.Key, wrong, true), sqljournal.ErrLost)
			}
			if s == othersRunning {
				mustFail(t, string(s), j.Forget(t.Context(), run.Key, i.Token, false), sqljournal.ErrRunning)
				mustLook(t, j, run.Key, running, "")
			}
			if err := j.Forget(t.Context(), run.Key, i.Token, s == othersRunning); err != nil {
				t.Errorf("%s: %v", s, err)
			}
			mustLook(t, j, run.Key, absent, "")
			if err := j.Forget(t.Context(), run.Key, i.Token, false); err != nil {
				t.Errorf("%s again: %v", s, err)
			}
		}
	})
}

// The statements also work where nothing is prepared.
func TestOperatorsExecModes(t *testing.T) {
	t.Parallel()
	for _, exec := range []string{"exec", "simple_protocol"} {
		d := dbtest.PostgreSQL(t)
		j, db := modes["intent"](d, t, dbtest.Param("default_query_exec_mode", exec)), d.Open(t)
		run := unfinishedRows(t, d, db, 1)[0]
		found, err := j.Scan(t.Context())
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: scan: %+v, %v", exec, found, err)
		}
		if i, err := j.Inspect(t.Context(), run.Key); err != nil || i.Token != found[0].Token || i.State != unfinished {
			t.Errorf("%s: inspect: %+v, %v", exec, i, err)
		}
		if err := j.Forget(t.Context(), run.Key, found[0].Token, false); err != nil {
			t.Errorf("%s: forget: %v", exec, err)
		}
		mustLook(t, j, run.Key, absent, "")
	}
}

// Who has seen a row without an outcome does not remove the outcome that its run has stored since.
func TestForgetLeavesALateOutcome(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j := modes["intent"](d, t)
		run := begin(t, j, newRun(time.Hour))
		seen, err := j.Inspect(t.Context(), run.Key)
		if err != nil || seen.State != running || seen.Left <= 0 || seen.Left > time.Hour {
			t.Fatalf("%+v, %v", seen, err)
		}
		if _, err := j.End(t.Context(), run, []byte("late"), time.Hour); err != nil {
			t.Fatal(err)
		}
		mustFail(t, "Forget", j.Forget(t.Context(), run.Key, seen.Token, true), sqljournal.ErrLost)
		mustLook(t, j, run.Key, journal.Done, "late")
	})
}

// fault: the database does not answer. Expected: each method fails, and says of what.
func TestOperatorsWithoutDatabase(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db := d.Open(t)
		j := sqljournal.Intent(db, namespace, d.Options()...)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		_, errInspect := j.Inspect(t.Context(), "k")
		_, errScan := j.Scan(t.Context())
		errForget := j.Forget(t.Context(), "k", newRun(0).Token, false)
		for _, err := range []error{errInspect, errScan, errForget} {
			if err == nil {
				t.Error("no error")
			}
		}
	})
}
