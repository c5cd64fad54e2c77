package echo5once_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/middleware"
)

// What was written in a transaction that is rolled back is not the response.
func TestRolledBack(t *testing.T) {
	commit := func(c *echo.Context, j *adaptertest.Journal) error {
		return j.InTx(c.Request().Context(), func() { _ = c.String(http.StatusCreated, "paid") })
	}
	for name, test := range map[string]struct {
		failures int
		h        func(*echo.Context, *adaptertest.Journal) error
		status   int
		body     string
	}{
		"committed":   {0, commit, 201, "paid"},
		"tried again": {1, func(c *echo.Context, j *adaptertest.Journal) error { _ = commit(c, j); return commit(c, j) }, 201, "paid"},
		"an error as JSON": {1, func(c *echo.Context, j *adaptertest.Journal) error {
			if err := commit(c, j); !errors.Is(err, adaptertest.ErrRolledBack) {
				t.Errorf("error %v", err)
			}
			return c.JSON(http.StatusPaymentRequired, "failed")
		}, 402, "\"failed\"\n"},
		"an error as a string": {1, func(c *echo.Context, j *adaptertest.Journal) error {
			_ = commit(c, j)
			return c.String(http.StatusPaymentRequired, "failed")
		}, 402, "failed"},
		"early hints, committed": {0, func(c *echo.Context, j *adaptertest.Journal) error { _ = earlyHints(c); return commit(c, j) }, 201, "paid"},
		"early hints, an error": {1, func(c *echo.Context, j *adaptertest.Journal) error {
			_ = earlyHints(c)
			_ = commit(c, j)
			return echo.NewHTTPError(http.StatusPaymentRequired, "failed")
		}, 402, "{\"message\":\"failed\"}\n"},
		"an error that is returned": {1, func(c *echo.Context, j *adaptertest.Journal) error {
			_ = commit(c, j)
			return echo.NewHTTPError(http.StatusPaymentRequired, "failed")
		}, 402, "{\"message\":\"failed\"}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			j := &adaptertest.Journal{Failures: test.failures}
			s := newService(t, middleware.WithJournal(j))
			s.echo.POST("/payments", func(c *echo.Context) error { return test.h(c, j) }, s.once)
			s.Want(s.Post("/payments", "k", "1"), test.status, test.body, middleware.Executed)
			s.Want(s.Post("/payments", "k", "1"), test.status, test.body, middleware.Replayed)
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
			j := &adaptertest.Journal{Failures: 1}
			s := newService(t, middleware.WithJournal(j))
			s.echo.POST("/payments", func(c *echo.Context) error {
				_ = j.InTx(c.Request().Context(), func() { _ = c.String(http.StatusCreated, "paid") })
				return h(c)
			}, s.once)
			s.Want(s.Post("/payments", "k", "1"), http.StatusInternalServerError, "*", middleware.Freed)
		})
	}
}
