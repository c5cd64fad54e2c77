package echo5once_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/onceguard/onceguard/middleware"
)

// journal is a transactional Journal whose first transactions fail.
type journal struct{ failures int }

func (*journal) Begin(context.Context, middleware.JournalRun) (middleware.JournalEntry, error) {
	return middleware.JournalEntry{}, nil
}

func (*journal) Look(context.Context, string) (middleware.JournalEntry, error) {
	return middleware.JournalEntry{}, nil
}

func (*journal) End(_ context.Context, run middleware.JournalRun, record []byte, keep time.Duration) (middleware.JournalEntry, error) {
	if record == nil {
		return middleware.JournalEntry{}, nil
	}
	return middleware.JournalEntry{State: middleware.Done, Token: run.Token, Record: record, Left: keep}, nil
}

var errRolledBack = errors.New("the transaction was rolled back")

// inTx runs fn in a transaction, as sqljournal's InTx does.
func (j *journal) inTx(ctx context.Context, fn func()) error {
	return middleware.FromContext(ctx).Transact(func(seal func() (middleware.Commit, error)) error {
		fn()
		_, err := seal()
		if j.failures--; err == nil && j.failures >= 0 {
			err = errRolledBack
		}
		return err
	}, func(middleware.JournalRun, bool) (middleware.JournalEntry, error) {
		return middleware.JournalEntry{}, nil
	})
}

// What was written in a transaction that is rolled back is not the response.
func TestRolledBack(t *testing.T) {
	commit := func(c *echo.Context, j *journal) error {
		return j.inTx(c.Request().Context(), func() { _ = c.String(http.StatusCreated, "paid") })
	}
	for name, test := range map[string]struct {
		failures int
		h        func(*echo.Context, *journal) error
		status   int
		body     string
	}{
		"committed":   {0, commit, 201, "paid"},
		"tried again": {1, func(c *echo.Context, j *journal) error { _ = commit(c, j); return commit(c, j) }, 201, "paid"},
		"an error as JSON": {1, func(c *echo.Context, j *journal) error {
			if err := commit(c, j); !errors.Is(err, errRolledBack) {
				t.Errorf("error %v", err)
			}
			return c.JSON(http.StatusPaymentRequired, "failed")
		}, 402, "\"failed\"\n"},
		"an error as a string": {1, func(c *echo.Context, j *journal) error {
			_ = commit(c, j)
			return c.String(http.StatusPaymentRequired, "failed")
		}, 402, "failed"},
		"an error that is returned": {1, func(c *echo.Context, j *journal) error {
			_ = commit(c, j)
			return echo.NewHTTPError(http.StatusPaymentRequired, "failed")
		}, 402, "{\"message\":\"failed\"}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			j := &journal{test.failures}
			s := newService(t, middleware.WithJournal(j))
			s.echo.POST("/payments", func(c *echo.Context) error { return test.h(c, j) }, s.once)
			s.want(s.post("/payments", "k", "1"), test.status, test.body, middleware.Executed)
			s.want(s.post("/payments", "k", "1"), test.status, test.body, middleware.Replayed)
		})
	}
}

// What echo drops of an answer after a transaction that was rolled back is no success.
func TestDroppedAfterRollback(t *testing.T) {
	for name, h := range map[string]echo.HandlerFunc{
		"a status alone": func(c *echo.Context) error { return c.NoContent(http.StatusPaymentRequired) },
		"a bare write": func(c *echo.Context) error {
			_, err := c.Response().Write([]byte("failed"))
			return err
		},
		"nothing": func(*echo.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			j := &journal{1}
			s := newService(t, middleware.WithJournal(j))
			s.echo.POST("/payments", func(c *echo.Context) error {
				_ = j.inTx(c.Request().Context(), func() { _ = c.String(http.StatusCreated, "paid") })
				return h(c)
			}, s.once)
			s.want(s.post("/payments", "k", "1"), http.StatusInternalServerError, "*", middleware.Freed)
		})
	}
}
