package sqljournal

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// SetProbeTime changes how long InTx and Around of j try to find out whether a transaction was committed.
func SetProbeTime(j *Journal, d time.Duration) { j.probeTime = d }

// SetOverrideTime changes how long an override of j may act.
func SetOverrideTime(j *Journal, d time.Duration) { j.overrideTime = d }

// Complete is what InTx stores last in its transaction.
func (j *Journal) Complete(ctx context.Context, e Execer, c journal.Commit) error {
	return j.dialect.complete(ctx, e, c)
}

// FindEntry is what InTx calls after a failure.
func (j *Journal) FindEntry(ctx context.Context, run journal.Run, commitSent bool) (journal.Entry, error) {
	return j.findEntry(ctx, run, commitSent)
}

var (
	ErrNeverComplete = errNeverComplete
	ErrOther         = errOtherJournal

	JoinNote  = joinNote
	SplitNote = splitNote

	MySQLNumber = mysqlNumber
)

const ProbeTime = probeTime

// Statements are those of PostgreSQL that have to find their rows by an index, with their parameters in SQL.
func Statements() map[string][]string {
	s := &postgresql
	const key, token, record = "'test:{0}'", "'6b0f0f7e-5d0c-4c55-9d4b-0a6d9c1e7a11'", "'r'"
	return map[string][]string{
		s.look:       {key},
		s.begin:      {key, token, record, "1"},
		s.finish:     {key, token, record, "1"},
		s.free:       {key, token},
		s.note:       {key, token, record},
		s.probeFound: {key},

		s.removeExpired: {key},
		s.finishSwept:   {key, token, record, "1", record},
		s.fill:          {key, token, record, "1", "1"},
		s.forget:        {key, token, "1", "true", "false", "1"},
		s.freeRun:       {key, token, "1"},

		s.sweep:  {token, "1", "1", "1", "'test:{'"},
		s.expire: {"'test:{'"},
	}
}
