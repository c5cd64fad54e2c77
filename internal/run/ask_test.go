package run

import (
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// Redis keeps a record for whole milliseconds, so one that has less left is not settled with.
func TestCanSettle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entry journal.Entry
		want  bool
	}{
		"a record":              {journal.Entry{State: journal.Done, Record: []byte("r"), Left: time.Hour}, true},
		"for a millisecond":     {journal.Entry{State: journal.Done, Record: []byte("r"), Left: time.Millisecond}, true},
		"for less":              {journal.Entry{State: journal.Done, Record: []byte("r"), Left: time.Millisecond - 1}, false},
		"no response was kept":  {journal.Entry{State: journal.Done, Left: time.Hour}, false},
		"a run without outcome": {journal.Entry{State: journal.Running, Record: []byte("r"), Left: time.Hour}, false},
	} {
		if got := canSettle(&test.entry); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// End has done what it was to do if the journal has nothing, or exactly the run's record.
func TestIsOurEnd(t *testing.T) {
	t.Parallel()
	ours := journal.Entry{State: journal.Done, Token: "ours", Record: []byte("record")}
	change := func(f func(e *journal.Entry)) journal.Entry {
		e := ours
		f(&e)
		return e
	}
	for name, test := range map[string]struct {
		entry   journal.Entry
		encoded []byte
		want    bool
	}{
		"our record":       {ours, []byte("record"), true},
		"another token":    {change(func(e *journal.Entry) { e.Token = "another" }), []byte("record"), false},
		"another record":   {change(func(e *journal.Entry) { e.Record = []byte("another") }), []byte("record"), false},
		"no record":        {change(func(e *journal.Entry) { e.Record = nil }), []byte("record"), false},
		"not done":         {change(func(e *journal.Entry) { e.State = journal.Running }), []byte("record"), false},
		"nothing":          {journal.Entry{}, []byte("record"), false},
		"freed":            {journal.Entry{}, nil, true},
		"freed, and a run": {journal.Entry{State: journal.Running, Token: "ours"}, nil, false},
	} {
		if got := isOurEnd(test.entry, journal.Run{Token: "ours"}, test.encoded); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
