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
	JoinNote  = joinNote
	SplitNote = splitNote

	MySQLNumber = mysqlNumber
)

const ProbeTime = probeTime

// Statements are those of PostgreSQL that have to find their rows by an index, with parameters.
func Statements() map[string][]any {
	s := &postgresql
	const token = "6b0f0f7e-5d0c-4c55-9d4b-0a6d9c1e7a11"
	return map[string][]any{
		s.look:       {"key"},
		s.begin:      {"key", token, []byte{0}, int64(1)},
		s.finish:     {"key", token, nil, int64(1)},
		s.free:       {"key", token},
		s.note:       {"key", token, []byte{0}},
		s.probeFound: {"key"},

		s.finishSwept: {"key", token, nil, int64(1), []byte{0}},
		s.fill:        {"key", token, []byte{0}, int64(1), int64(1)},
		s.forget:      {"key", token, int64(1), true, false, int64(1)},
		s.freeRun:     {"key", token, int64(1)},

		s.sweep:  {token, int64(1), int64(1), int64(1), "test:{"},
		s.expire: {"test:{"},
	}
}
