package operate

import (
	"fmt"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Finding is what Redis and the journal have under a key. Package admin and the commands show it in the same words.
type Finding struct {
	middleware.Inspection
	Row        Row
	Unreadable error // a middleware.ErrUnreadable: why the record or the note cannot be read; nil if it can
	RedisDown  bool  // Redis did not answer
	Unasked    bool  // a journal may have the outcome, and cannot be asked
	NamesLock  bool  // the key is known to be a lock's, which no journal has
}

// Row is what an operator sees of a row of the journal.
type Row struct {
	Key      string
	State    journal.State // Absent, Running, Unfinished or Done
	Token    string        // names the row in its present state; empty if Absent
	Run      string        // for middleware.Middleware.Resolve: the token of the run
	Began    time.Time     // zero if it is not known
	Left     time.Duration // Running: until its limit. Done: until it expires. Unfinished: see isHandedOut
	Attempts int           // how often a sweep was handed the row
	Response bool          // Done: a record is stored
	Size     int           // of the record in bytes
	Note     []byte        // of the handler
}

// isHandedOut reports whether a sweep has the row, for the time Left. Without one, Left of an unfinished row is not
// positive: the time since its limit, or 0 if it is not known.
func (r *Row) isHandedOut() bool { return r.State == journal.Unfinished && r.Left > 0 }

// Entry returns the row as a journal's entry, without note and record.
func (r *Row) Entry() journal.Entry {
	return journal.Entry{State: r.State, Token: r.Run, Left: max(r.Left, 0)}
}

// NewFinding returns the Finding of an Inspection and its error, which is nil or a middleware.ErrUnreadable.
func NewFinding(i middleware.Inspection, err error, now time.Time) Finding {
	e := i.Journal
	row := Row{State: e.State, Token: e.Token, Run: e.Token, Left: e.Left, Response: i.Stored != nil || err != nil}
	if e.Age > 0 {
		row.Began = now.Add(-e.Age)
	}
	return Finding{Inspection: i, Row: row, Unreadable: err}
}

// IsUnanswered reports whether the journal has the outcome of the run, and no record that a retry gets.
func (f *Finding) IsUnanswered() bool {
	return f.State() == lock.Settled && f.Redis.State != lock.Settled && f.Stored == nil && f.Unreadable == nil
}

// Meaning is Inspection.Meaning, limited by what could not be asked.
func (f *Finding) Meaning() string {
	text := f.Inspection.Meaning()
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

// Line is one fact.
type Line struct{ Name, Text string }

// Lines returns the facts, without the key, its state and its token.
func (f *Finding) Lines(now time.Time) []Line {
	if f.State() == lock.Free {
		return nil
	}
	var l lines
	switch f.Run {
	case middleware.RequestRun:
		l.add("run", "of an HTTP request")
	case middleware.FunctionRun:
		l.add("run", "of a function (package once)")
	}
	if f.Redis.State != lock.Free {
		l.addRedis(&f.Redis, now)
	}
	l.addStored(f, now)
	if f.HasJournal {
		l.add("redis", "%s", f.RedisState())
		l.addRow(&f.Row, now)
	}
	return l
}

// RedisState returns the state in Redis, for beside that of the journal.
func (f *Finding) RedisState() string {
	switch {
	case f.RedisDown:
		return "unknown"
	case f.NoRedis:
		return "none"
	}
	return f.Redis.State.String()
}

type lines []Line

func (l *lines) add(name, format string, args ...any) {
	*l = append(*l, Line{name, fmt.Sprintf(format, args...)})
}

// addRedis adds what Redis holds.
func (l *lines) addRedis(info *lock.Info, now time.Time) {
	if info.Owner != "" {
		l.add("owner", "%s", info.Owner)
	}
	if info.Fence != 0 {
		l.add("fence", "%d", info.Fence)
	}
	if !info.ClaimedAt.IsZero() {
		l.add("claimed", "%s", moment(info.ClaimedAt, now))
	}
	if !info.SettledAt.IsZero() {
		l.add("settled", "%s", moment(info.SettledAt, now))
	}
	switch {
	case info.State == lock.Abandoned:
		l.add("lease", "over")
		l.add("hold", "%v left", short(info.HoldLeft))
	case info.LeaseLeft > 0:
		l.add("lease", "%v left, unless it is renewed", short(info.LeaseLeft))
		if info.HoldLeft > 0 {
			l.add("hold", "%v after that", short(info.HoldLeft))
		}
	}
	switch {
	case info.TTL < 0:
		l.add("ends", "never: another program has taken the expiry off")
	case info.State != lock.Abandoned: // its hold ends the key
		l.add("ends", "in %v", short(info.TTL))
	}
	l.add("size", "%d bytes", info.Size)
}

// addStored adds what is stored for retries.
func (l *lines) addStored(f *Finding, now time.Time) {
	switch r := f.Stored; {
	case f.Unreadable != nil:
		l.add("stored", "cannot be read: %v", f.Unreadable)
	case r == nil:
	case r.Tombstone:
		l.add("stored", "no result; completed %s", moment(r.Completed, now))
	case f.Run == middleware.FunctionRun:
		l.add("stored", "the result of a function; completed %s", moment(r.Completed, now))
	default:
		l.add("stored", "status %d, a body of %d bytes; completed %s", r.Status, r.BodySize, moment(r.Completed, now))
	}
}

// addRow adds what the journal has.
func (l *lines) addRow(r *Row, now time.Time) {
	switch {
	case r.State == journal.Absent:
		l.add("journal", "no row")
		return
	case r.State == journal.Running:
		l.add("journal", "running, %v until its limit", short(r.Left))
	case r.isHandedOut():
		l.add("journal", "unfinished, and handed to a sweep for %v more", short(r.Left))
	case r.State == journal.Unfinished:
		l.add("journal", "unfinished%s. No retry runs until it is resolved, freed or swept", r.since())
	case !r.Response:
		l.add("journal", "done, without a response; ends in %v", short(r.Left))
	default:
		l.add("journal", "done; ends in %v", short(r.Left))
	}
	if !r.Began.IsZero() {
		l.add("began", "%s", moment(r.Began, now))
	}
	switch {
	case r.Attempts == 1:
		l.add("swept", "once")
	case r.Attempts > 1:
		l.add("swept", "%d times", r.Attempts)
	}
	if len(r.Note) > 0 {
		l.add("note", "%s", r.Note)
	}
}

// since says how long ago the time of an unfinished row ended.
func (r *Row) since() string {
	switch {
	case r.Left == 0:
		return ""
	case r.Attempts > 0:
		return fmt.Sprintf(": the time of its sweep ended %v ago", short(-r.Left))
	}
	return fmt.Sprintf(": its limit was %v ago", short(-r.Left))
}

// moment returns a time and how long ago it was.
func moment(t, now time.Time) string {
	return fmt.Sprintf("%s, %v ago", t.UTC().Format("2006-01-02 15:04:05 MST"), short(now.Sub(t)))
}

// short returns d in whole seconds, or in milliseconds below ten seconds.
func short(d time.Duration) time.Duration {
	if d.Abs() < 10*time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}
