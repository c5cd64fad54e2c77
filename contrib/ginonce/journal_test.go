package ginonce_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// What was written in a transaction that is rolled back is not the response.
func TestRolledBack(t *testing.T) {
	commit := func(c *gin.Context, j *adaptertest.Journal) error {
		return j.InTx(c.Request.Context(), func() { c.String(http.StatusCreated, "paid") })
	}
	for name, test := range map[string]struct {
		failures int
		h        func(*gin.Context, *adaptertest.Journal)
		status   int
		body     string
	}{
		"committed":   {0, func(c *gin.Context, j *adaptertest.Journal) { _ = commit(c, j) }, 201, "paid"},
		"tried again": {1, func(c *gin.Context, j *adaptertest.Journal) { _ = commit(c, j); _ = commit(c, j) }, 201, "paid"},
		"an error as JSON": {1, func(c *gin.Context, j *adaptertest.Journal) {
			if err := commit(c, j); !errors.Is(err, adaptertest.ErrRolledBack) || c.Writer.Written() || c.Writer.Status() != 200 {
				t.Errorf("error %v, written %v, status %d", err, c.Writer.Written(), c.Writer.Status())
			}
			c.JSON(http.StatusPaymentRequired, "failed")
		}, 402, `"failed"`},
		"early hints, committed": {0, func(c *gin.Context, j *adaptertest.Journal) { earlyHints(c); _ = commit(c, j) }, 200, "paid"},
		"early hints, an error": {1, func(c *gin.Context, j *adaptertest.Journal) {
			earlyHints(c)
			_ = commit(c, j)
			c.JSON(http.StatusPaymentRequired, "failed")
		}, 402, `"failed"`},
		"an error as a status": {1, func(c *gin.Context, j *adaptertest.Journal) {
			_ = commit(c, j)
			c.AbortWithStatus(http.StatusPaymentRequired)
		}, 402, ""},
		"a status alone, sent at once": {0, func(c *gin.Context, j *adaptertest.Journal) {
			if err := j.InTx(c.Request.Context(), func() { c.Status(http.StatusAccepted); c.Writer.WriteHeaderNow() }); err != nil {
				t.Error(err)
			}
		}, 202, ""},
		"a status alone is no response yet": {0, func(c *gin.Context, j *adaptertest.Journal) {
			if err := j.InTx(c.Request.Context(), func() { c.Status(http.StatusAccepted) }); !errors.Is(err, journal.ErrNoResponse) {
				t.Errorf("error %v, want ErrNoResponse", err)
			}
			c.Status(http.StatusPaymentRequired)
		}, 402, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := &adaptertest.Journal{Failures: test.failures}
			s := newService(t, middleware.WithJournal(j))
			s.engine.POST("/payments", s.once, func(c *gin.Context) { test.h(c, j) })
			s.Want(s.Post("/payments", "k", "1"), test.status, test.body, middleware.Executed)
			s.Want(s.Post("/payments", "k", "1"), test.status, test.body, middleware.Replayed)
		})
	}
}
