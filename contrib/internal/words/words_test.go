package words_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/internal/redistest"
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

// A body that was read before, or that may have been, has a word of its own, and a 5xx that was stored, and so becomes the
// answer to each repetition.
func TestErrorTypeOfARequest(t *testing.T) {
	t.Parallel()
	locker := lock.New(redistest.Mini(t).Client(t), "test")
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	for i, test := range []struct {
		length int64 // of the body, as the request says
		status int
		option middleware.Option
		want   string
	}{
		{4, http.StatusOK, middleware.WithRequired(), "body_used"},
		{-1, http.StatusOK, middleware.WithRequired(), "body_maybe_used"},
		{0, http.StatusServiceUnavailable, middleware.WithAtMostOnce(), "stored_5xx"},
		{0, http.StatusServiceUnavailable, middleware.WithRequired(), ""},
		{0, http.StatusConflict, middleware.WithAtMostOnce(), ""},
	} {
		got := "none"
		observe := middleware.WithObserver(func(_ context.Context, e middleware.Event) { got = words.ErrorType(&e) })
		key := func(*http.Request) (string, error) { return fmt.Sprint(i), nil }
		once := middleware.Idempotency(locker, key, observe, test.option)
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(""))
		r.ContentLength = test.length
		once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
		})).ServeHTTP(httptest.NewRecorder(), r)
		if got != test.want {
			t.Errorf("%+v: %q", test, got)
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
