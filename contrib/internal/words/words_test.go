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

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestErrorTypes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{}, ""},
		{middleware.Event{Err: errors.Join(errors.New("any"), fmt.Errorf("%w; %w", context.DeadlineExceeded, lock.ErrLost))}, "lease_lost"},
		{middleware.Event{Err: lock.ErrForeign, Outcome: middleware.Unreadable}, "key_foreign"},
		{middleware.Event{Err: errors.Join(errors.New("damaged"), context.DeadlineExceeded), Outcome: middleware.Unreadable}, "record_unreadable"},
		{middleware.Event{Err: io.ErrUnexpectedEOF, Outcome: middleware.BodyUnreadable}, "body_unreadable"},
		{middleware.Event{Err: fmt.Errorf("body: %w", os.ErrDeadlineExceeded), Outcome: middleware.BodyUnreadable}, "timeout"},
		{middleware.Event{Err: errors.New("no session"), Outcome: middleware.KeyFailed}, "key_failed"},
		{middleware.Event{Err: context.DeadlineExceeded, Outcome: middleware.KeyFailed}, "timeout"},
		{middleware.Event{Err: redis.ErrClosed}, "_OTHER"},
		{middleware.Event{Err: fmt.Errorf("claim: %w", &net.OpError{Op: "dial", Err: errors.New("refused")})}, "network"},
		{middleware.Event{Err: context.Canceled}, "canceled"},
		{middleware.Event{Err: fmt.Errorf("%w: %w", context.Canceled, &net.OpError{Op: "dial", Err: errors.New("refused")})}, "canceled"},
		{middleware.Event{Err: context.DeadlineExceeded}, "timeout"},
		{middleware.Event{Err: fmt.Errorf("%w: %w", context.DeadlineExceeded, io.EOF)}, "timeout"},
		{middleware.Event{Err: &http.MaxBytesError{}}, "body_too_large"},
		{middleware.Event{Err: fmt.Errorf("%w; %w", io.ErrUnexpectedEOF, lock.ErrPending)}, "pending"},
		{middleware.Event{Err: fmt.Errorf("%w: 0 of 1", lock.ErrNotReplicated)}, "not_replicated"},
		{middleware.Event{Err: lock.ErrClosed}, "locker_closed"},
		{middleware.Event{Err: keyfunc.ErrInvalid}, "key_invalid"},
		{middleware.Event{Err: fmt.Errorf("paid: %w", run.ErrOutsideTx), Outcome: middleware.Executed}, "outside_transaction"},
		{middleware.Event{Err: errors.New("declared"), Outcome: middleware.Unknown}, "run_unknown"},
		{middleware.Event{Err: errors.New("abandoned"), Outcome: middleware.OutcomeUnknown}, "earlier_run_unknown"},
		{middleware.Event{Err: errors.Join(context.DeadlineExceeded), Outcome: middleware.Unknown}, "timeout"},
	} {
		if got := words.ErrorType(&test.event); got != test.want {
			t.Errorf("%v: %q, want %q", test.event.Err, got, test.want)
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

// The words for errors of Redis are those of a server's replies.
func TestErrorTypeOfAReply(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redistest.NewClient(t, server.Addr(), redistest.OneTry)
	for reply, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'.":         "redis_oom",
		"READONLY You can't write against a read only replica.":           "redis_readonly",
		"MISCONF Redis is configured to save RDB snapshots":               "redis_misconf",
		"NOPERM User default has no permissions to run the 'set' command": "redis_noperm",
		"ERR unknown command": "_OTHER",
	} {
		server.SetError(reply)
		err := client.Set(t.Context(), "k", "v", 0).Err()
		if got := words.ErrorType(&middleware.Event{Err: fmt.Errorf("claim: %w", err)}); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
