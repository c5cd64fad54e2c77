package operate

import (
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Meaning says in a sentence, without a full stop, what the state means to a client or a caller, as far as Redis and the
// journal could be asked.
func (f *Finding) Meaning() string {
	text := f.meaning()
	switch state := f.State(); {
	case f.NamesLock && state == lock.Free:
		return "nobody holds it, or its name is mistyped; the next caller gets it"
	case f.NamesLock && state == lock.Settled:
		return "its holder has settled it (lock.Lease.Settle); until this ends, callers get lock.ErrSettled"
	case f.RedisDown && state == lock.Free:
		return text + ", unless Redis has its outcome"
	case state == lock.Abandoned && f.Journaled && !f.HasJournal:
		return text + ", unless its journal, which cannot be asked here, has its outcome"
	case f.Unasked && (state == lock.Free || state == lock.Abandoned):
		return text + ", unless a journal has its outcome"
	}
	return text
}

// meaning is Meaning, as if all had been asked.
func (f *Finding) meaning() string {
	w := wordings[f.Run]
	switch state := f.State(); {
	case state == lock.Free:
		return f.missing() + ": it may be mistyped. The next try with it runs"
	case state == lock.Held && f.Journal.State == journal.Done:
		return "the journal has its outcome, and a retry that asks for it has the key, or died a moment ago; others wait, or get " + w.inFlight
	case state == lock.Held && f.Redis.IsLock:
		return "it is a lock, and its holder is at work, or died a moment ago"
	case state == lock.Held && f.Redis.State != lock.Held:
		return w.run + " runs, or its process died before its limit; others wait, or get " + w.inFlight
	case state == lock.Held:
		return w.run + " runs, or its process died a moment ago; others wait, or get " + w.inFlight
	case state == lock.Abandoned && f.Journal.State == journal.Unfinished && f.Journal.Left > 0:
		return w.run + " ended without an outcome, and a sweep is finding out what happened; retries get " + w.unknown
	case state == lock.Abandoned && f.Journaled && f.HasJournal && f.Journal.State == journal.Absent:
		return w.run + " ended, and the journal has no row of it: nothing that the journal protects has happened. A retry runs"
	case state == lock.Abandoned:
		return w.run + " ended without an outcome; retries get " + w.unknown
	case f.Stored != nil && f.Stored.Unknown:
		return "retries get " + w.unknownNotStored + ": it is not known whether it took effect"
	case f.Stored != nil && !f.Stored.Tombstone:
		return "retries get " + w.stored
	case f.Stored != nil || f.Redis.State != lock.Settled && f.Journal.State == journal.Done:
		return w.run + " has ended, and its result was not kept; retries get " + w.notStored
	}
	return "retries get what is stored, or " + w.notStored + " if it could not be kept"
}

// missing says who does not have the key.
func (f *Finding) missing() string {
	switch {
	case f.NoRedis:
		return "the journal has no such key"
	case f.HasJournal:
		return "neither Redis nor the journal has such a key"
	}
	return "Redis has no such key"
}

// wording are the words for the runs of a kind.
type wording struct{ run, stored, inFlight, unknown, unknownNotStored, notStored string }

var wordings = map[middleware.RunKind]wording{
	middleware.RequestRun: {
		"a request", "the stored response", "409 in-flight", "409 outcome-unknown", "409 response-not-stored", "409 response-not-stored",
	},
	middleware.FunctionRun: {
		"a function", "the stored value or error", "once.ErrInFlight", "once.ErrOutcomeUnknown", "once.ErrOutcomeUnknown", "once.ErrNotStored",
	},
	"": {"a run", "what is stored", "409 in-flight", "409 outcome-unknown", "409 response-not-stored", "409 response-not-stored"},
}
