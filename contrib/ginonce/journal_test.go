package ginonce_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

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
	commit := func(c *gin.Context, j *journal) error {
		return j.inTx(c.Request.Context(), func() { c.String(http.StatusCreated, "paid") })
	}
	for name, test := range map[string]struct {
		failures int
		h        func(*gin.Context, *journal)
		status   int
		body     string
	}{
		"committed":   {0, func(c *gin.Context, j *journal) { _ = commit(c, j) }, 201, "paid"},
		"tried again": {1, func(c *gin.Context, j *journal) { _ = commit(c, j); _ = commit(c, j) }, 201, "paid"},
		"an error as JSON": {1, func(c *gin.Context, j *journal) {
			if err := commit(c, j); !errors.Is(err, errRolledBack) || c.Writer.Written() || c.Writer.Status() != 200 {
				t.Errorf("error %v, written %v, status %d", err, c.Writer.Written(), c.Writer.Status())
			}
			c.JSON(http.StatusPaymentRequired, "failed")
		}, 402, `"failed"`},
		"an error as a status": {1, func(c *gin.Context, j *journal) {
			_ = commit(c, j)
			c.AbortWithStatus(http.StatusPaymentRequired)
		}, 402, ""},
		"a status alone, sent at once": {0, func(c *gin.Context, j *journal) {
			if err := j.inTx(c.Request.Context(), func() { c.Status(http.StatusAccepted); c.Writer.WriteHeaderNow() }); err != nil {
				t.Error(err)
			}
		}, 202, ""},
		"a status alone is no response yet": {0, func(c *gin.Context, j *journal) {
			if err := j.inTx(c.Request.Context(), func() { c.Status(http.StatusAccepted) }); !errors.Is(err, middleware.ErrNoResponse) {
				t.Errorf("error %v, want ErrNoResponse", err)
			}
			c.Status(http.StatusPaymentRequired)
		}, 402, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := &journal{test.failures}
			s := newService(t, middleware.WithJournal(j))
			s.engine.POST("/payments", s.once, func(c *gin.Context) { test.h(c, j) })
			s.want(s.post("/payments", "k", "1"), test.status, test.body, middleware.Executed)
			s.want(s.post("/payments", "k", "1"), test.status, test.body, middleware.Replayed)
		})
	}
}
