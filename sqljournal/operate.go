package sqljournal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// For an operator: Inspect, Scan and Forget. The command sqljournal/cmd/onceguard calls them. To store a response for a
// run that has none, an operator uses middleware.Middleware.Resolve.

// Info is what [Journal.Inspect] and [Journal.Scan] find in a row: everything but the record.
type Info struct {
	// as it stands in Redis
	Key string
	// Absent, Running, Unfinished or Done; never Begun
	State journal.State

	// Token names the row in its present state for Forget; empty if Absent. Without an outcome it is Run. With an
	// outcome it has a prefix as well, so that an operator who saw the row without one cannot remove an outcome stored
	// since.
	Token string
	// the token of the run, for middleware.Middleware.Resolve; empty if Absent
	Run string

	// when the run began, by the database's clock
	Began time.Time

	// Left is the time until the run's limit if Running, and until the row expires if Done. If Unfinished, it is negative,
	// the time since the limit; or positive, the time for which a sweep has the row.
	Left time.Duration

	// how often Sweep has handed the row out
	Attempts int
	// of the record in bytes; 0 if Done without one, by Sweep's function
	Size int
	// what the handler has stored by [Journal.Note]; nil if Done
	Note []byte

	response bool // Done: with a record
}

// ErrRunning means that the run in a row has not reached its limit, or that a sweep has just handed the row out.
var ErrRunning = errors.New("sqljournal: the time of the run, or of its sweep, is not over")

// Prefixes of a token, for a row that is done. See [Info].
const (
	prefixResponse   = "done-"
	prefixNoResponse = "unanswered-"
)

// Inspect returns what the journal has under key, the key as it stands in Redis. It changes nothing, and does not wait
// for open transactions. A row that has expired is Absent. The error is the database's.
func (j *Journal) Inspect(ctx context.Context, key string) (Info, error) {
	i, err := j.info(ctx, key)
	if err != nil {
		return Info{}, fmt.Errorf("sqljournal: inspect: %w", err)
	}
	return i, nil
}

// Scan returns the rows of the journal's namespace that have no response: first those without an outcome, the oldest
// limit first, then those that are done without a response. It changes nothing. It is one statement that reads the
// whole table. The error is the database's.
func (j *Journal) Scan(ctx context.Context) ([]Info, error) {
	found, err := j.infos(ctx, j.dialect.scan, j.keyPrefix())
	if err != nil {
		return nil, fmt.Errorf("sqljournal: scan: %w", err)
	}
	return found, nil
}

// Forget removes the row that token names ([Info].Token), so that a retry runs, unless Redis still has the response. If
// the run took effect, the effect then happens again. Forget returns nil if there is no row.
//
// [ErrLost] means that the row has changed since it was inspected, and [ErrRunning] that its time is not over; with
// evenIfLive Forget removes such a row too. After these errors nothing was changed. After any other error the row may have
// been removed, or may still be within 5 s; by MySQL later if an open transaction has the row. Then inspect it again.
func (j *Journal) Forget(ctx context.Context, key, token string, evenIfLive bool) error {
	err := again(func() error { return j.tryForget(ctx, key, token, evenIfLive) })
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrRunning) {
		return err
	}
	return fmt.Errorf("sqljournal: forget: %w", err)
}

// info returns the row of key. Without one, or if it has expired, the Info is Absent.
func (t *table) info(ctx context.Context, key string) (Info, error) {
	found, err := t.infos(ctx, t.dialect.inspect, key)
	if err != nil || len(found) == 0 {
		return Info{Key: key}, err
	}
	return found[0], nil
}

// infos returns the rows that a query selects, without those that have expired.
func (t *table) infos(ctx context.Context, query string, arg any) (found []Info, _ error) {
	var i Info
	var state, began, left int64
	var note []byte
	rows, err := t.dialect.query(ctx, t.db, query, arg)
	err = scanRows(rows, err, func() {
		i.Token, i.Note = i.Run, nil
		i.Began, i.Left = time.Unix(0, began*int64(t.dialect.unit)), time.Duration(left)*t.dialect.unit
		switch {
		case state == stateDone && left <= 0:
			return
		case state == stateDone && i.response:
			i.State, i.Token = journal.Done, prefixResponse+i.Run
		case state == stateDone:
			i.State, i.Token = journal.Done, prefixNoResponse+i.Run
		case left >= 0 && i.Attempts == 0:
			i.State = journal.Running
		default:
			i.State = journal.Unfinished
		}
		if i.State != journal.Done {
			_, i.Note, _ = splitNote(note) // of a damaged one, an operator sees nothing
		}
		found = append(found, i)
	}, &i.Key, &i.Run, &state, &note, &began, &left, &i.Attempts, &i.response, &i.Size)
	return found, err
}
