package operate

import (
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// What the state is, and what it means, follows from Redis and the journal together.
//
// fault: a retry has claimed a key whose outcome only the journal has. Expected: the key is held, and no retry gets the
// response before that claim ends.
func TestMeaning(t *testing.T) {
	t.Parallel()
	redis := func(state lock.State) lock.Info { return lock.Info{State: state} }
	row := func(state journal.State, left time.Duration) journal.Entry {
		return journal.Entry{State: state, Left: left}
	}
	for _, test := range []struct {
		i     middleware.Inspection
		state lock.State
		want  string
	}{
		{middleware.Inspection{}, lock.Free, "Redis has no such key: it may be mistyped. The next try with it runs"},
		{middleware.Inspection{HasJournal: true}, lock.Free, "neither Redis nor the journal has such a key"},
		{middleware.Inspection{HasJournal: true, NoRedis: true}, lock.Free, "the journal has no such key"},
		{middleware.Inspection{Redis: redis(lock.Held)}, lock.Held, "a run runs, or its process died a moment ago"},
		{middleware.Inspection{Redis: redis(lock.Held), Run: middleware.FunctionRun}, lock.Held, "a function runs, or its process died a moment ago; others wait, or get once.ErrInFlight"},
		{middleware.Inspection{Redis: redis(lock.Held), Journal: row(journal.Done, time.Hour), Stored: &middleware.StoredRecord{Status: 201}, Run: middleware.RequestRun},
			lock.Held, "the journal has its outcome, and a retry that asks for it has the key, or died a moment ago; others wait, or get 409 in-flight"},
		{middleware.Inspection{Journal: row(journal.Running, time.Hour)}, lock.Held, "died before its limit"},
		{middleware.Inspection{Redis: redis(lock.Abandoned), Journal: row(journal.Running, time.Hour)}, lock.Held, "died before its limit"},
		{middleware.Inspection{Redis: redis(lock.Abandoned), Journal: row(journal.Done, time.Hour)}, lock.Settled, "has ended, and its result was not kept"},
		{middleware.Inspection{Redis: redis(lock.Abandoned), Run: middleware.RequestRun}, lock.Abandoned, "a request ended without an outcome; retries get 409 outcome-unknown"},
		{middleware.Inspection{Redis: redis(lock.Abandoned), Run: middleware.FunctionRun}, lock.Abandoned, "a function ended without an outcome; retries get once.ErrOutcomeUnknown"},
		{middleware.Inspection{Redis: redis(lock.Abandoned), Run: middleware.RequestRun, Journaled: true, HasJournal: true},
			lock.Abandoned, "a request ended, and the journal has no row of it: nothing that the journal protects has happened. A retry runs"},
		{middleware.Inspection{Redis: redis(lock.Abandoned), Run: middleware.RequestRun, Journaled: true}, lock.Abandoned, "retries get 409 outcome-unknown"},
		{middleware.Inspection{Redis: redis(lock.Abandoned), Run: middleware.RequestRun, HasJournal: true}, lock.Abandoned, "retries get 409 outcome-unknown"},
		{middleware.Inspection{Journal: row(journal.Unfinished, 0)}, lock.Abandoned, "ended without an outcome; retries get"},
		{middleware.Inspection{Journal: row(journal.Unfinished, time.Hour)}, lock.Abandoned, "a sweep is finding out what happened"},
		{middleware.Inspection{Redis: redis(lock.Settled)}, lock.Settled, "retries get what is stored, or 409 response-not-stored if it could not be kept"},
		{middleware.Inspection{Redis: redis(lock.Settled), Stored: &middleware.StoredRecord{}, Run: middleware.RequestRun}, lock.Settled, "retries get the stored response"},
		{middleware.Inspection{Redis: redis(lock.Settled), Stored: &middleware.StoredRecord{}, Run: middleware.FunctionRun}, lock.Settled, "retries get the stored value or error"},
		{middleware.Inspection{Redis: redis(lock.Settled), Stored: &middleware.StoredRecord{Tombstone: true}, Run: middleware.FunctionRun},
			lock.Settled, "a function has ended, and its result was not kept; retries get once.ErrNotStored"},
		{middleware.Inspection{Redis: redis(lock.Settled), Stored: &middleware.StoredRecord{Tombstone: true, Unknown: true}, Run: middleware.RequestRun},
			lock.Settled, "retries get 409 response-not-stored: it is not known whether it took effect"},
	} {
		f := Finding{Inspection: test.i}
		if got := f.State(); got != test.state {
			t.Errorf("%+v: %v, want %v", test.i, got, test.state)
		}
		if got := f.Meaning(); !strings.Contains(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.i, got, test.want)
		}
	}
}
