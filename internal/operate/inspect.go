package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

func prepareInspect(Environment, *config) (action, error) { return inspect, nil }

// inspect prints what the key holds.
func inspect(ctx context.Context, s *session) error {
	f, err := s.read(ctx)
	if exitCode(err) == exitFailed && s.journal != nil && errors.As(err, new(redisError)) {
		s.leaveRedis(ctx, err)
		f, err = s.read(ctx)
	}
	switch {
	case exitCode(err) == exitFailed && s.noRedis != nil: // the journal does not answer either
		return errors.Join(s.noRedis, err)
	case err != nil && !errors.Is(err, errFree):
		return err
	case s.noRedis != nil: // instead of errFree, because Redis may have the key
		err = fmt.Errorf("only the journal was asked: %w", s.noRedis)
	}
	if s.json {
		return errors.Join(err, writeJSON(s.Stdout, s.newFacts(&f)))
	}
	s.writeFacts(&f, time.Now())
	return err
}

// unlessRedis limits what follows from the journal alone, if Redis was to be asked.
func (s *session) unlessRedis() string {
	if s.noRedis == nil {
		return ""
	}
	return ", unless Redis has its outcome"
}

// redisState returns the state in Redis, as the output has it beside that of the journal.
func (s *session) redisState(info *lock.Info) string {
	switch {
	case s.noRedis != nil:
		return "unknown"
	case s.locker.IsNone():
		return none
	}
	return info.State.String()
}

// meaning returns what a state means to a customer.
func (s *session) meaning(f *finding) string {
	switch state := f.state(); {
	case state == lock.Free && s.journal == nil:
		return "Redis has no such key: it may be mistyped. A request with it runs, unless a journal in a database has " +
			"its outcome, which this command cannot ask"
	case state == lock.Free && s.locker.IsNone():
		return "the journal has no such key: it may be mistyped. A request with it runs" + s.unlessRedis()
	case state == lock.Free:
		return "neither Redis nor the journal has such a key: it may be mistyped. A request with it runs"
	case state == lock.Abandoned && f.row.isHandedOut():
		return "a request ended without an outcome, and a sweep is finding out what happened; retries get 409 outcome-unknown"
	case state == lock.Held && f.info.State == lock.Free:
		return "a request runs, or its process died before its limit; others wait, or get 409 in-flight"
	case state == lock.Held:
		return "a request runs, or its process died a moment ago; others wait, or get 409 in-flight"
	case state == lock.Abandoned && s.journal == nil:
		return "a request ended without an outcome; retries get 409 outcome-unknown, unless a journal has its outcome"
	case state == lock.Abandoned:
		return "a request ended without an outcome; retries get 409 outcome-unknown"
	case f.stored != nil && f.stored.Unknown:
		return "retries get 409 response-not-stored: it is not known whether the request took effect"
	case f.stored != nil && !f.stored.Tombstone:
		return "retries get the stored response"
	case f.stored != nil || f.info.State != lock.Settled && !f.row.Response:
		return "the request was processed; retries get 409 response-not-stored"
	}
	return "retries get the stored response, or 409 if it could not be kept"
}

// writeFacts writes what the key holds, for people, and what the key was made of if the command line had that instead.
func (s *session) writeFacts(f *finding, now time.Time) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(s.Stdout, "%-8s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("key", "%s", printable(f.info.Key))
	if s.key == "" {
		row("made of", "namespace %q, %s, and -key", s.namespace, s.request)
	}
	row("state", "%v: %s", f.state(), s.meaning(f))
	if f.state() == lock.Free {
		return
	}
	row("token", "%s", f.token())
	if f.info.State != lock.Free {
		writeInfo(row, &f.info, now)
	}
	switch r := f.stored; {
	case f.unreadable != nil:
		row("stored", "cannot be read: %s", printable(f.unreadable.Error()))
	case r == nil:
	case r.Tombstone:
		row("stored", "no response; completed %s", moment(r.Completed, now))
	case r.Function:
		row("stored", "the result of a function; completed %s", moment(r.Completed, now))
	default:
		row("stored", "status %d, a body of %d bytes; completed %s", r.Status, r.BodySize, moment(r.Completed, now))
	}
	if s.journal != nil {
		row("redis", "%s", s.redisState(&f.info))
		writeRow(row, &f.row, now)
	}
}

// writeInfo writes what Redis holds.
func writeInfo(row func(name, format string, args ...any), info *lock.Info, now time.Time) {
	if info.Fence != 0 {
		row("fence", "%d", info.Fence)
	}
	if !info.ClaimedAt.IsZero() {
		row("claimed", "%s", moment(info.ClaimedAt, now))
	}
	if !info.SettledAt.IsZero() {
		row("settled", "%s", moment(info.SettledAt, now))
	}
	switch {
	case info.State == lock.Abandoned:
		row("lease", "over")
		row("hold", "%v left", short(info.HoldLeft))
	case info.LeaseLeft > 0:
		row("lease", "%v left, unless it is renewed", short(info.LeaseLeft))
		if info.HoldLeft > 0 {
			row("hold", "%v after that", short(info.HoldLeft))
		}
	}
	if info.TTL < 0 {
		row("ends", "never: another program has taken the expiry off")
	} else {
		row("ends", "in %v", short(info.TTL))
	}
	row("size", "%d bytes", info.Size)
}

// writeRow writes what the journal has.
func writeRow(row func(name, format string, args ...any), r *Row, now time.Time) {
	switch r.State {
	case journal.Absent:
		row("journal", "no row")
		return
	case journal.Running:
		row("journal", "running, %v until its limit", short(r.Left))
	case journal.Unfinished:
		if r.isHandedOut() {
			row("journal", "unfinished, and handed to a sweep for %v more", short(r.Left))
			break
		}
		since := "its limit was"
		if r.Attempts > 0 {
			since = "the time of its sweep ended"
		}
		row("journal", "unfinished: %s %v ago. No retry runs until it is resolved, freed or swept", since, short(-r.Left))
	case journal.Done:
		what := "done"
		if !r.Response {
			what = "done, without a response"
		}
		row("journal", "%s; ends in %v", what, short(r.Left))
	}
	row("began", "%s", moment(r.Began, now))
	switch {
	case r.Attempts == 1:
		row("swept", "once")
	case r.Attempts > 1:
		row("swept", "%d times", r.Attempts)
	}
	if len(r.Note) > 0 {
		row("note", "%s", printable(string(r.Note)))
	}
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
