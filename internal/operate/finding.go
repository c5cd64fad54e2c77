package operate

import (
	"context"
	"errors"
	"strings"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// tokenSeparator stands between two tokens. No token has it.
const tokenSeparator = "+"

// tokenOf names what Redis and the journal have. A run has the same token in both. Two tokens are of a response that both
// have, or of two runs: a retry that died before it could release its claim, or a row that the release before this one
// has swept.
func tokenOf(f *Finding) string {
	ofRedis, ofRow := f.Redis.Token, f.Row.Token
	switch {
	case ofRedis == "" || ofRedis == ofRow:
		return ofRow
	case ofRow == "":
		return ofRedis
	}
	return ofRedis + tokenSeparator + ofRow
}

// splitToken undoes tokenOf: it returns what names the claim or the value in Redis, and the row of the journal.
func splitToken(token string) (ofRedis, ofRow string) {
	ofRedis, ofRow, both := strings.Cut(token, tokenSeparator)
	if !both {
		ofRow = ofRedis
	}
	return ofRedis, ofRow
}

// read is find with the record or the note. A record that cannot be read is no error.
func (s *session) read(ctx context.Context, key string) (Finding, error) {
	f, err := s.find(ctx, key)
	if err != nil {
		return f, err
	}
	if s.lock != "" { // its value is no record
		return f, nil
	}
	seen, err := s.once.Inspect(ctx, f.Redis.Key)
	if errors.Is(err, middleware.ErrUnreadable) {
		f.Unreadable, err = err, nil
	}
	f.Inspection = seen
	return f, err
}

// find returns what the key holds, without record and note. If it holds nothing, find also returns errFree. With any
// other error only the finding's key is set.
func (s *session) find(ctx context.Context, key string) (Finding, error) {
	info, err := run.InspectRedis(ctx, s.locker, key)
	if err != nil {
		return s.newFinding(lock.Info{Key: key, State: lock.Free}, Row{}), redisError{err}
	}
	row, err := s.findRow(ctx, info.Key)
	if err != nil {
		return s.newFinding(lock.Info{Key: key, State: lock.Free}, Row{}), err
	}
	f := s.newFinding(info, row)
	if f.State() == lock.Free {
		return f, errFree
	}
	return f, nil
}

func (s *session) newFinding(info lock.Info, row Row) Finding {
	return Finding{
		Row: row, RedisDown: s.noRedis != nil, Unasked: s.journal == nil && s.lock == "", NamesLock: s.lock != "",
		Inspection: middleware.Inspection{
			Redis: info, Journal: row.Entry(), NoRedis: s.locker.IsNone(), HasJournal: s.journal != nil,
		},
	}
}

// redisError is an error of Redis, where one of the journal would be possible as well.
type redisError struct{ error }

func (e redisError) Unwrap() error { return e.error }

// findRow returns the journal's row of a key, which is absent without a journal.
func (s *session) findRow(ctx context.Context, key string) (Row, error) {
	if s.journal == nil {
		return Row{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.journal.Row(ctx, key)
}
