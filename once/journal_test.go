package once_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/once"
)

// memJournal is a Journal in memory, whose records do not expire.
type memJournal struct {
	intent bool

	mu   sync.Mutex
	rows map[string]journal.Entry
	till map[string]time.Time // the limits of runs
}

func newJournal(intent bool) *memJournal {
	return &memJournal{intent: intent, rows: map[string]journal.Entry{}, till: map[string]time.Time{}}
}

func (*memJournal) Namespace() string { return "test" }

func (j *memJournal) IsIntent() bool { return j.intent }

// stands returns what stands under a key. The caller holds mu.
func (j *memJournal) stands(key string) journal.Entry {
	e := j.rows[key]
	switch {
	case e.State == journal.Done:
		e.Left = time.Hour
	case e.State == journal.Running && time.Now().After(j.till[key]):
		e.State = journal.Unfinished
	}
	return e
}

func (j *memJournal) Begin(_ context.Context, run journal.Run) (journal.Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.stands(run.Key)
	if e.State == journal.Absent && j.intent {
		e = journal.Entry{State: journal.Running, Token: run.Token, Note: bytes.Clone(run.Note)}
		j.rows[run.Key], j.till[run.Key] = e, time.Now().Add(run.Limit)
	}
	if e.State == journal.Running && e.Token == run.Token {
		e.State = journal.Begun
	}
	return e, nil
}

func (j *memJournal) End(_ context.Context, run journal.Run, record []byte, _ time.Duration) (journal.Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.stands(run.Key)
	isFree := e.State == journal.Absent && !run.Intent || e.State != journal.Done && e.Token == run.Token
	switch {
	case isFree && record != nil:
		j.rows[run.Key] = journal.Entry{State: journal.Done, Token: run.Token, Record: bytes.Clone(record)}
	case isFree:
		delete(j.rows, run.Key)
	}
	return j.stands(run.Key), nil
}

func (j *memJournal) Look(_ context.Context, key string) (journal.Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stands(key), nil
}

// modes runs test with a journal of each mode.
func modes(t *testing.T, test func(t *testing.T, b redistest.Backend, j *memJournal)) {
	t.Helper()
	for name, intent := range map[string]bool{"transactional": false, "intent": true} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) { test(t, b, newJournal(intent)) })
		})
	}
}

// Redis may lose everything.
func TestJournal(t *testing.T) {
	modes(t, func(t *testing.T, b redistest.Backend, j *memJournal) {
		d := open(t, b, once.WithJournal(j))
		e := d.want(d.do(d.charge), 1, false, "executed")
		if e.Journal.Start.IsZero() || (e.Err == nil) != j.intent { // only Redis protects an effect outside of a transaction
			t.Errorf("%+v", e)
		}
		for range 2 {
			b.FlushAll(t)
			d.want(d.do(d.charge), 1, true, "replayed")
			d.wantRefused(d.do(d.charge, input("other")), once.ErrReused, "reused")
		}
		d.wantRuns(1)
	})
}

// A transaction that knows no value does not begin inside of Do, and the error says what to call.
func TestTransactionWithoutAValue(t *testing.T) {
	modes(t, func(t *testing.T, b redistest.Backend, j *memJournal) {
		d := open(t, b, once.WithJournal(j))
		a := d.do(func(ctx context.Context) (receipt, error) {
			err := journal.Transact(ctx,
				func(func() (journal.Commit, error)) error { t.Error("the transaction began"); return nil },
				func(journal.Run, bool) (journal.Entry, error) {
					t.Error("it was asked for its outcome")
					return journal.Entry{}, nil
				})
			return receipt{}, once.NothingHappened(err)
		})
		if a.err == nil || !strings.Contains(a.err.Error(), "sqljournal.Do") {
			t.Errorf("%+v", a)
		}
		d.event("freed")
		d.want(d.do(d.charge), 2, false, "executed")
	})
}

type elsewhere struct{ *memJournal }

func (elsewhere) Namespace() string { return "elsewhere" }
