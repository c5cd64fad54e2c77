package words_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/internal/reread"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// reply is an error of Redis.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// The most telling error counts, and the outcome only if there is none.
func TestErrorTypes(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for _, test := range []struct {
		errs    []error
		outcome middleware.Outcome
		want    string
	}{
		{nil, middleware.Unknown, ""},
		{[]error{errors.New("any"), context.DeadlineExceeded, lock.ErrLost}, "", "lease_lost"},
		{[]error{lock.ErrForeign}, middleware.Unreadable, "key_foreign"},
		{[]error{errors.New("damaged"), context.DeadlineExceeded}, middleware.Unreadable, "record_unreadable"},
		{[]error{reply("OOM command not allowed")}, "", "redis_oom"},
		{[]error{reply("READONLY You can't write")}, "", "redis_readonly"},
		{[]error{reply("ERR unknown command")}, "", "_OTHER"},
		{[]error{redis.ErrClosed}, "", "_OTHER"},
		{[]error{io.ErrUnexpectedEOF}, middleware.BodyUnreadable, "body_unreadable"},
		{[]error{os.ErrDeadlineExceeded}, middleware.BodyUnreadable, "timeout"},
		{[]error{errors.New("no session")}, middleware.KeyFailed, "key_failed"},
		{[]error{context.DeadlineExceeded, io.EOF}, middleware.KeyFailed, "timeout"},
		{[]error{refused}, "", "network"},
		{[]error{context.Canceled, refused}, "", "canceled"},
		{[]error{&http.MaxBytesError{}}, "", "body_too_large"},
		{[]error{io.ErrUnexpectedEOF, lock.ErrPending}, "", "pending"},
		{[]error{lock.ErrNotReplicated}, "", "not_replicated"},
		{[]error{lock.ErrClosed}, "", "locker_closed"},
		{[]error{keyfunc.ErrInvalid}, "", "key_invalid"},
		{[]error{errors.New("an empty scope")}, middleware.InvalidKey, "key_invalid"},
		{[]error{reread.ErrUsed}, middleware.KeyFailed, "body_used"},
		{[]error{reread.ErrMaybeUsed}, middleware.Executed, "body_maybe_used"},
		{[]error{run.ErrOutsideTx}, middleware.Executed, "outside_transaction"},
		{[]error{errors.New("declared")}, middleware.Unknown, "run_unknown"},
		{[]error{errors.New("abandoned")}, middleware.OutcomeUnknown, "earlier_run_unknown"},
		{[]error{context.DeadlineExceeded}, middleware.Unknown, "timeout"},
	} {
		e := middleware.Event{Outcome: test.outcome, Err: errors.Join(test.errs...)}
		if got := words.ErrorType(&e); got != test.want {
			t.Errorf("%v: %q, want %q", test.errs, got, test.want)
		}
	}
}

// A 5xx has a word if it was stored, and so becomes the answer to each repetition.
func TestErrorTypeOfAStored5xx(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]middleware.Event{
		"stored_5xx": {Outcome: middleware.Executed, Status: 500, Size: 1},
		"":           {Outcome: middleware.Executed, Status: 499, Size: 1},
	} {
		freed, replayed := e, e
		freed.Size, replayed.Outcome = 0, middleware.Replayed
		if got := words.ErrorType(&e) + words.ErrorType(&freed) + words.ErrorType(&replayed); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}

// The error is of the phase that failed, and of no other.
func TestFailedPhase(t *testing.T) {
	t.Parallel()
	happened := middleware.Phase{Start: time.Now()}
	for _, test := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{Outcome: middleware.StoreUnavailable, Claim: happened, Journal: happened}, "journal"},
		{middleware.Event{Outcome: middleware.NotStored, Pending: true, Claim: happened}, "settle"},
		{middleware.Event{Outcome: middleware.LeaseLost}, "settle"},
		{middleware.Event{Outcome: middleware.Unprotected}, "claim"},
		{middleware.Event{Outcome: middleware.Unknown, Claim: happened}, ""},
	} {
		if got := words.FailedPhase(&test.event); got != "" {
			t.Errorf("%+v without an error: %q", test.event, got)
		}
		test.event.Err = io.EOF
		if got := words.FailedPhase(&test.event); got != test.want {
			t.Errorf("%+v: %q, want %q", test.event, got, test.want)
		}
	}
}
