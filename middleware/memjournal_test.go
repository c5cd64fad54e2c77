package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
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
	entry   journal.Entry
	until   time.Time // of a run
	expires time.Time // of a record
}

func newJournal(intent bool) *memJournal {
	return &memJournal{intent: intent, rows: map[string]*memRow{}, calls: map[string]int{}}
}

// Namespace is that of the tests' Lockers.
func (*memJournal) Namespace() string { return "test" }

func (j *memJournal) IsIntent() bool { return j.intent }

// do runs one operation between the hooks.
func (j *memJournal) do(op string, f func() (journal.Entry, error)) (journal.Entry, error) {
	j.mu.Lock()
	j.calls[op]++
	before, after := j.before, j.after
	j.mu.Unlock()
	if before != nil {
		if err := before(op); err != nil {
			return journal.Entry{}, err
		}
	}
	j.mu.Lock()
	entry, err := f()
	j.mu.Unlock()
	if after != nil && err == nil {
		if err := after(op); err != nil {
			return journal.Entry{}, err
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
func (j *memJournal) stands(key string) journal.Entry {
	row := j.rows[key]
	switch {
	case row == nil, row.entry.State == journal.Done && time.Now().After(row.expires):
		return journal.Entry{}
	case row.entry.State == journal.Done:
		entry := row.entry
		entry.Left = time.Until(row.expires)
		return entry
	case time.Now().After(row.until):
		entry := row.entry
		entry.State = journal.Unfinished
		return entry
	}
	return row.entry
}

func (j *memJournal) Begin(_ context.Context, run journal.Run) (journal.Entry, error) {
	return j.do("begin", func() (journal.Entry, error) {
		j.note = bytes.Clone(run.Note)
		entry := j.stands(run.Key)
		switch {
		case entry.State == journal.Absent && j.intent:
			entry = journal.Entry{State: journal.Running, Token: run.Token, Note: bytes.Clone(run.Note)}
			j.rows[run.Key] = &memRow{entry: entry, until: time.Now().Add(run.Limit)}
			fallthrough
		case entry.State == journal.Running && entry.Token == run.Token:
			entry.State = journal.Begun
		}
		return entry, nil
	})
}

func (j *memJournal) End(_ context.Context, run journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	return j.do("end", func() (journal.Entry, error) {
		if record != nil {
			j.store(run, record, keep)
		} else if row := j.rows[run.Key]; row != nil && row.entry.Token == run.Token && row.entry.State != journal.Done {
			delete(j.rows, run.Key)
		}
		return j.stands(run.Key), nil
	})
}

func (j *memJournal) Look(_ context.Context, key string) (journal.Entry, error) {
	return j.do("look", func() (journal.Entry, error) { return j.stands(key), nil })
}

// store stores a record if no other stands in its way.
func (j *memJournal) store(run journal.Run, record []byte, keep time.Duration) bool {
	entry := j.stands(run.Key)
	if run.Intent && (entry.Token != run.Token || entry.State == journal.Done) || !run.Intent && entry.State != journal.Absent {
		return false
	}
	j.rows[run.Key] = &memRow{
		entry:   journal.Entry{State: journal.Done, Token: run.Token, Record: bytes.Clone(record)},
		expires: time.Now().Add(keep),
	}
	return true
}

var errOvertaken = errors.New("another run has the key")

// inTx runs fn, and commits one effect together with the record.
func (j *memJournal) inTx(ctx context.Context, fn func() error) error {
	if _, _, ok := journal.FromContext(ctx); !ok {
		if err := fn(); err != nil {
			return err
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.effects++
		return nil
	}
	return journal.Transact(ctx, func(seal func() (journal.Commit, error)) error {
		if err := fn(); err != nil {
			return err
		}
		commit, err := seal()
		if err != nil {
			return err
		}
		_, err = j.do("commit", func() (journal.Entry, error) {
			if !j.store(commit.Run, commit.Record, commit.Keep) {
				return journal.Entry{}, errOvertaken
			}
			j.effects++
			return journal.Entry{}, nil
		})
		return err
	}, func(run journal.Run, _ bool) (journal.Entry, error) {
		return j.do("truth", func() (journal.Entry, error) { return j.stands(run.Key), nil })
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
