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

func TestEachKindHasAnOutcome(t *testing.T) {
	t.Parallel()
	for kind := Unprotected; kind < KindCount; kind++ {
		if kind != Own && outcomes[kind] == "" {
			t.Errorf("kind %d has no outcome", kind)
		}
	}
}
