package operate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

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

// NewFinding returns the Finding of an Inspection and its error. A record that cannot be read is no error.
func NewFinding(i middleware.Inspection, err error) (Finding, error) {
	e := i.Journal
	f := Finding{Inspection: i, Row: Row{State: e.State, Token: e.Token, Run: e.Token, Left: e.Left}}
	if e.Age > 0 {
		f.Row.Began = time.Now().Add(-e.Age)
	}
	if errors.Is(err, middleware.ErrUnreadable) {
		f.Unreadable, err = err, nil
	}
	f.Row.Response = i.Stored != nil || f.Unreadable != nil
	return f, err
}

// IsUnanswered reports whether the journal has the outcome of the run, and no record that a retry gets.
func (f *Finding) IsUnanswered() bool {
	return f.State() == lock.Settled && f.Redis.State != lock.Settled && f.Stored == nil && f.Unreadable == nil
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
		l.add("redis", "%s", f.redisState())
		l.addRow(&f.Row, now)
	}
	return l
}

// redisState returns the state in Redis, for beside that of the journal.
func (f *Finding) redisState() string {
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

// addTime adds a time and how long ago it was, unless it is zero.
func (l *lines) addTime(name string, t, now time.Time) {
	if !t.IsZero() {
		l.add(name, "%s", moment(t, now))
	}
}

// addRedis adds what Redis holds.
func (l *lines) addRedis(info *lock.Info, now time.Time) {
	if info.Owner != "" {
		l.add("owner", "%s", info.Owner)
	}
	if info.Fence != 0 {
		l.add("fence", "%d", info.Fence)
	}
	l.addTime("claimed", info.ClaimedAt, now)
	l.addTime("settled", info.SettledAt, now)
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
	case r.State == journal.Running:
		l.add("journal", "running, %v until its limit", short(r.Left))
	case r.isHandedOut():
		l.add("journal", "unfinished, and handed to a sweep for %v more", short(r.Left))
	case r.State == journal.Unfinished && r.Left == 0:
		l.add("journal", "unfinished. "+noRetry)
	case r.State == journal.Unfinished && r.Attempts == 0:
		l.add("journal", "unfinished: its limit was %v ago. "+noRetry, short(-r.Left))
	case r.State == journal.Unfinished:
		l.add("journal", "unfinished: the time of its sweep ended %v ago. "+noRetry, short(-r.Left))
	case !r.Response:
		l.add("journal", "done, without a response; ends in %v", short(r.Left))
	default:
		l.add("journal", "done; ends in %v", short(r.Left))
	}
	l.addTime("began", r.Began, now)
	if r.Attempts > 0 {
		l.add("swept", "%d", r.Attempts)
	}
	if len(r.Note) > 0 {
		l.add("note", "%s", r.Note)
	}
}

const noRetry = "No retry runs until it is resolved, freed or swept"

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

// facts are an object of JSON. What is empty is left out.
type facts map[string]any

func (f facts) MarshalJSON() ([]byte, error) {
	filled := maps.Clone(f)
	maps.DeleteFunc(filled, func(name string, value any) bool { return name != "ttl_ms" && reflect.ValueOf(value).IsZero() })
	return json.Marshal(map[string]any(filled))
}

// facts returns the finding for programs.
func (f *Finding) facts() facts {
	info, row := &f.Redis, &f.Row
	all := facts{
		"key": info.Key, "state": f.State().String(), "token": f.Token(), "run": f.Run,
		"lock": info.IsLock, "owner": info.Owner, "fence": info.Fence,
		"claimed_at": expressible(info.ClaimedAt), "settled_at": expressible(info.SettledAt),
		"lease_left_ms": info.LeaseLeft.Milliseconds(), "hold_left_ms": info.HoldLeft.Milliseconds(), "ttl_ms": info.TTL.Milliseconds(),
	}
	if r := f.Stored; r != nil {
		all["stored"] = facts{
			"status": r.Status, "tombstone": r.Tombstone, "unknown": r.Unknown, "completed_at": expressible(r.Completed), "body_size": r.BodySize,
		}
	}
	if f.Unreadable != nil {
		all["stored"] = facts{"unreadable": f.Unreadable.Error()}
	}
	if f.HasJournal {
		all["redis"] = f.redisState() // unknown, none, or the state in Redis
		all["journal"] = facts{
			"state": row.State.String(), "began_at": expressible(row.Began), "left_ms": row.Left.Milliseconds(),
			"attempts": row.Attempts, "response": row.Response, "note": string(row.Note),
		}
	}
	return all
}

// expressible returns t in UTC, or the zero time if t is damaged, and JSON (RFC 3339) has no such year.
func expressible(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, printable(strings.TrimSuffix(b.String(), "\n")))
	return err
}

// printable returns s with each character that a terminal would act on, or not show, as \uXXXX: control characters,
// line breaks, those that change the direction of the text. A byte that is no UTF-8 becomes U+FFFD. The result for JSON
// is JSON of the same value, because such characters can only be in its strings.
func printable(s string) string {
	var b strings.Builder
	for _, c := range s {
		if unicode.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, c) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
