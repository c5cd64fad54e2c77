package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// lockFlag is for the commands that a lock needs: one that is held has no outcome, and frees itself.
func lockFlag(set *flag.FlagSet, c *config) {
	set.StringVar(&c.lock, "lock", "", "the `name` of a lock (lock.Locker.Acquire), in place of KEY")
}

func prepareInspect(Environment, *config) (action, error) { return inspect, nil }

// inspect prints what the key holds.
func inspect(ctx context.Context, s *session) error {
	key, err := s.storageKey()
	if err != nil {
		return err
	}
	f, err := s.find(ctx, key)
	switch {
	case err != nil && !errors.Is(err, errFree):
		return err
	case s.redisFailed != nil: // instead of errFree, because Redis may have the key
		err = fmt.Errorf("only the journal was asked: %w", s.redisFailed)
	}
	if s.json {
		return errors.Join(err, writeJSON(s.Stdout, f.facts()))
	}
	s.writeFacts(&f)
	return err
}

// writeFacts writes what the key holds, for people, and what the key was made of if the command line had that instead.
func (s *session) writeFacts(f *Finding) {
	facts := []Line{{"key", f.Redis.Key}}
	if s.key == "" {
		facts = append(facts, Line{"made of", s.madeOf()})
	}
	facts = append(facts, Line{"state", fmt.Sprintf("%v: %s", f.State(), f.Meaning())})
	if f.State() != lock.Free {
		facts = append(facts, Line{"token", f.Token()})
	}
	for _, line := range append(facts, f.Lines(time.Now())...) {
		fmt.Fprintf(s.Stdout, "%-8s %s\n", line.Name, printable(line.Text))
	}
}

// find returns what the key holds. If it holds nothing, find also returns errFree. With any other error only the finding's
// key is set. The row is read before the record, so that its token never names a later one.
func (s *session) find(ctx context.Context, key string) (f Finding, err error) {
	f.Redis.Key = key
	storageKey, err := s.locker.ParseKey(key)
	if err != nil {
		return f, err
	}
	var row Row
	if s.journal != nil {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		if row, err = s.journal.Row(ctx, storageKey); err != nil {
			return f, err
		}
	}
	f, err = NewFinding(s.once.Inspect(ctx, storageKey))
	f.RedisDown, f.Unasked, f.NamesLock = s.redisFailed != nil, s.journal == nil && s.lock == "", s.lock != ""
	if f.Row = row; f.NamesLock {
		f.Unreadable = nil // the value of a lock is no record
	}
	switch {
	case err != nil:
		f.Redis.Key = storageKey
	case f.State() == lock.Free:
		err = errFree
	}
	return f, err
}

// tokenSeparator stands between two tokens. No token has it.
const tokenSeparator = "+"

// Token names what Redis and the journal have. A run has the same token in both. Two tokens are of a response that both
// have, or of two runs: a retry that died before it could release its claim, or a row that the release before this one
// has swept.
func (f *Finding) Token() string {
	ofRedis, ofRow := f.Redis.Token, f.Row.Token
	switch {
	case ofRedis == "" || ofRedis == ofRow:
		return ofRow
	case ofRow == "":
		return ofRedis
	}
	return ofRedis + tokenSeparator + ofRow
}

// splitToken undoes Token: it returns what names the claim or the value in Redis, and the row of the journal.
func splitToken(token string) (ofRedis, ofRow string) {
	ofRedis, ofRow, both := strings.Cut(token, tokenSeparator)
	if !both {
		ofRow = ofRedis
	}
	return ofRedis, ofRow
}

// Resolve tells Redis and the journal what happened to the run that token names. If nothing happened, which isFree says, it
// also frees an abandoned claim that has another token than the row, see Token: its run did not begin, because the row was
// there.
func (f *Finding) Resolve(
	ctx context.Context, once *middleware.Middleware, locker *lock.Locker, token string, said middleware.Resolution, isFree bool,
) error {
	ofRedis, ofRow := splitToken(token)
	if ofRow == f.Row.Token && f.Row.State == journal.Done { // that token is not the run's
		ofRow = f.Row.Run
	}
	err := once.Resolve(ctx, f.Redis.Key, ofRow, said)
	if err != nil || !isFree || ofRow == ofRedis || f.Redis.State != lock.Abandoned {
		return err
	}
	if err := locker.Forget(ctx, f.Redis.Key, ofRedis, false); err != nil { // not wrapped: the row is changed
		return fmt.Errorf("the journal's row is freed, but not the claim in Redis: %v", err)
	}
	return nil
}
