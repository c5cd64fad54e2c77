package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// errDown is the error of a database that does not answer.
var errDown = errors.New("the database is down")

// memJournal is a Journal in memory, with the effects of the transactions that it commits. Its hooks make it fail.
type memJournal struct {
	intent bool

	mu      sync.Mutex
	rows    map[string]*memRow
	effects int // that were committed
	calls   map[string]int
	note    []byte // of the last Begin

	// before and after are called around each operation, with its name: begin, end, look, truth and commit. An error from
	// before means that the operation was not executed, and one from after that its reply was lost. Both may be nil.
	before, after func(op string) error
}

type memRow struct {
	entry   middleware.JournalEntry
	until   time.Time // of a run
	expires time.Time // of a record
}

func newJournal(intent bool) *memJournal {
	return &memJournal{intent: intent, rows: map[string]*memRow{}, calls: map[string]int{}}
}

// Namespace is that of the tests' Lockers.
func (*memJournal) Namespace() string { return "test" }

// do runs one operation between the hooks.
func (j *memJournal) do(op string, f func() (middleware.JournalEntry, error)) (middleware.JournalEntry, error) {
	j.mu.Lock()
	j.calls[op]++
	before, after := j.before, j.after
	j.mu.Unlock()
	if before != nil {
		if err := before(op); err != nil {
			return middleware.JournalEntry{}, err
		}
	}
	j.mu.Lock()
	entry, err := f()
	j.mu.Unlock()
	if after != nil && err == nil {
		if err := after(op); err != nil {
			return middleware.JournalEntry{}, err
		}
	}
	return entry, err
}

// setHooks sets before and after.
func (j *memJournal) setHooks(before, after func(op string) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.before, j.after = before, after
}

// at returns a hook that fails the operation named, n times.
func at(op string, n int) func(string) error {
	var mu sync.Mutex
	return func(got string) error {
		mu.Lock()
		defer mu.Unlock()
		if got != op || n == 0 {
			return nil
		}
		n--
		return errDown
	}
}

// stands returns what stands under a key.
func (j *memJournal) stands(key string) middleware.JournalEntry {
	row := j.rows[key]
	switch {
	case row == nil, row.entry.State == middleware.Done && time.Now().After(row.expires):
		return middleware.JournalEntry{}
	case row.entry.State == middleware.Done:
		entry := row.entry
		entry.Left = time.Until(row.expires)
		return entry
	case time.Now().After(row.until):
		entry := row.entry
		entry.State = middleware.Unfinished
		return entry
	}
	return row.entry
}

func (j *memJournal) Begin(_ context.Context, run middleware.JournalRun) (middleware.JournalEntry, error) {
	return j.do("begin", func() (middleware.JournalEntry, error) {
		j.note = bytes.Clone(run.Note)
		entry := j.stands(run.Key)
		switch {
		case entry.State == middleware.Absent && j.intent:
			entry = middleware.JournalEntry{State: middleware.Running, Token: run.Token, Note: bytes.Clone(run.Note)}
			j.rows[run.Key] = &memRow{entry: entry, until: time.Now().Add(run.Limit)}
			fallthrough
		case entry.State == middleware.Running && entry.Token == run.Token:
			entry.State = middleware.Begun
		}
		return entry, nil
	})
}

func (j *memJournal) End(_ context.Context, run middleware.JournalRun, record []byte, keep time.Duration) (middleware.JournalEntry, error) {
	return j.do("end", func() (middleware.JournalEntry, error) {
		if record != nil {
			j.store(run, record, keep)
		} else if row := j.rows[run.Key]; row != nil && row.entry.Token == run.Token && row.entry.State != middleware.Done {
			delete(j.rows, run.Key)
		}
		return j.stands(run.Key), nil
	})
}

func (j *memJournal) Look(_ context.Context, key string) (middleware.JournalEntry, error) {
	return j.do("look", func() (middleware.JournalEntry, error) { return j.stands(key), nil })
}

// store stores a record if no other stands in its way.
func (j *memJournal) store(run middleware.JournalRun, record []byte, keep time.Duration) bool {
	entry := j.stands(run.Key)
	if run.Intent && (entry.Token != run.Token || entry.State == middleware.Done) || !run.Intent && entry.State != middleware.Absent {
		return false
	}
	j.rows[run.Key] = &memRow{
		entry:   middleware.JournalEntry{State: middleware.Done, Token: run.Token, Record: bytes.Clone(record)},
		expires: time.Now().Add(keep),
	}
	return true
}

var errOvertaken = errors.New("another run has the key")

// inTx runs fn, and commits one effect together with the record.
func (j *memJournal) inTx(ctx context.Context, fn func() error) error {
	run := middleware.FromContext(ctx)
	if _, _, ok := run.Journaled(); !ok {
		if err := fn(); err != nil {
			return err
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.effects++
		return nil
	}
	return run.Transact(func(seal func() (middleware.Commit, error)) error {
		if err := fn(); err != nil {
			return err
		}
		commit, err := seal()
		if err != nil {
			return err
		}
		_, err = j.do("commit", func() (middleware.JournalEntry, error) {
			if !j.store(commit.Run, commit.Record, commit.Keep) {
				return middleware.JournalEntry{}, errOvertaken
			}
			j.effects++
			return middleware.JournalEntry{}, nil
		})
		return err
	}, func(run middleware.JournalRun, _ bool) (middleware.JournalEntry, error) {
		return j.do("truth", func() (middleware.JournalEntry, error) { return j.stands(run.Key), nil })
	})
}

// want checks how many effects were committed, and how many rows there are.
func (j *memJournal) want(t *testing.T, effects, rows int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.effects != effects || len(j.rows) != rows {
		t.Errorf("%d effects and %d rows, want %d and %d", j.effects, len(j.rows), effects, rows)
	}
}

// modes runs test with a journal of each mode.
func modes(t *testing.T, test func(t *testing.T, j *memJournal)) {
	t.Helper()
	for name, intent := range map[string]bool{"transactional": false, "intent": true} {
		t.Run(name, func(t *testing.T) { test(t, newJournal(intent)) })
	}
}
