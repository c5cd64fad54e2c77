package operate

import (
	"context"
	"errors"
	"strings"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// finding is what Redis and the journal have under a key.
type finding struct {
	info       lock.Info
	row        Row
	stored     *middleware.StoredRecord // nil if there is none, or it is unreadable
	unreadable error
}

// state returns what the next request with the key meets. Redis is asked first, and the journal if Redis has no response.
func (f *finding) state() lock.State {
	switch {
	case f.info.State == lock.Settled || f.row.State == journal.Done:
		return lock.Settled
	case f.info.State == lock.Held || f.row.State == journal.Running:
		return lock.Held
	case f.info.State == lock.Abandoned || f.row.State == journal.Unfinished:
		return lock.Abandoned
	}
	return lock.Free
}

// tokenSeparator stands between two tokens. No token has it.
const tokenSeparator = "+"

// token names what Redis and the journal have. A run has the same token in both. Two tokens are of a response that both
// have, or of two runs: a retry that died before it could release its claim, or a row that the release before this one
// has swept.
func (f *finding) token() string {
	if f.info.Token == "" || f.info.Token == f.row.Token {
		return f.row.Token
	}
	if f.row.Token == "" {
		return f.info.Token
	}
	return f.info.Token + tokenSeparator + f.row.Token
}

// splitToken undoes token: it returns what names the claim or the value in Redis, and the row of the journal.
func splitToken(token string) (ofRedis, ofRow string) {
	ofRedis, ofRow, both := strings.Cut(token, tokenSeparator)
	if !both {
		ofRow = ofRedis
	}
	return ofRedis, ofRow
}

// read is look with the stored record.
func (s *session) read(ctx context.Context) (finding, error) {
	f, err := s.look(ctx)
	if err != nil {
		return f, err
	}
	seen, err := s.once.Inspect(ctx, f.info.Key)
	if errors.Is(err, middleware.ErrUnreadable) {
		f.unreadable, err = err, nil
	}
	f.stored = seen.Stored
	return f, err
}

// look returns what the key holds, without the record. If it holds nothing, look also returns errFree. With any other
// error only the finding's key is set.
func (s *session) look(ctx context.Context) (f finding, err error) {
	key, err := s.storageKey()
	if err != nil {
		return f, err
	}
	if f.info, err = s.inspectRedis(ctx, key); err != nil {
		err = redisError{err}
	} else {
		f.row, err = s.findRow(ctx, f.info.Key)
	}
	switch {
	case err != nil:
		return finding{info: lock.Info{Key: key}}, err
	case f.state() == lock.Free:
		return f, errFree
	}
	return f, nil
}

// redisError is an error of Redis, where one of the journal would be possible as well.
type redisError struct{ error }

func (e redisError) Unwrap() error { return e.error }

// inspectRedis returns what Redis holds under a key: nothing, without Redis.
func (s *session) inspectRedis(ctx context.Context, key string) (lock.Info, error) {
	if s.locker.IsNone() {
		key, err := s.locker.ParseKey(key)
		return lock.Info{Key: key, State: lock.Free}, err
	}
	return s.locker.Inspect(ctx, key)
}

// findRow returns the journal's row of a key, which is absent without a journal.
func (s *session) findRow(ctx context.Context, key string) (Row, error) {
	if s.journal == nil {
		return Row{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.journal.Row(ctx, key)
}

// findRows returns the journal's rows that have no response.
func (s *session) findRows(ctx context.Context) ([]Row, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.journal.Rows(ctx)
}
