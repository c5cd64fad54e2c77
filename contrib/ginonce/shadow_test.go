package ginonce_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/middleware"
)

// In shadow every request runs, and each run has a Key of its own: what is behind the handler must not take two runs for
// one because both have none.
func TestShadow(t *testing.T) {
	s := newService(t, middleware.WithShadow())
	keys := make(chan string, 10)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.engine.Use(func(c *gin.Context) {
		r := c.Request
		c.Next()
		if c.Request != r {
			t.Error("c.Request is not as it was")
		}
	})
	s.engine.POST("/payments", s.once, s.counted(func(c *gin.Context) {
		keys <- middleware.FromContext(c.Request.Context()).Key()
		body, err := c.GetRawData()
		if string(body) == "first" {
			entered <- struct{}{}
			<-leave
		}
		if err != nil || len(body) == 0 {
			t.Errorf("the handler reads %q, %v", body, err)
		}
		c.String(http.StatusCreated, "paid")
	}))
	first := make(chan adaptertest.Answer, 1)
	go func() { first <- s.Post("/payments", "k", "first") }()
	<-entered
	s.Want(s.Post("/payments", "k", "other"), http.StatusCreated, "paid", middleware.Reused)
	close(leave)
	s.Want(<-first, http.StatusCreated, "paid", middleware.Executed)
	go func() { <-entered }()
	if e := s.Want(s.Post("/payments", "k", "first"), http.StatusCreated, "paid", middleware.Replayed); e.Differs {
		t.Error("the same response differs")
	}
	s.Want(s.Post("/payments", "", "no key"), http.StatusCreated, "paid", middleware.Unprotected)
	s.WantRuns(4)
	for known := map[string]bool{}; len(known) < 3; {
		key := <-keys
		if key == "" || known[key] {
			t.Fatalf("the key %q, after %v", key, known)
		}
		known[key] = true
	}
}

// In shadow an outer middleware may answer in place of a handler that has only set a status, as without this one.
func TestShadowLeavesTheResponseToOthers(t *testing.T) {
	s := newService(t, middleware.WithShadow())
	s.engine.Use(func(c *gin.Context) {
		if c.Next(); !c.Writer.Written() {
			c.String(http.StatusTeapot, "in place of %d", c.Writer.Status())
		}
	})
	s.engine.POST("/payments", s.once, s.counted(func(c *gin.Context) { c.Status(http.StatusAccepted) }))
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		e := s.Want(s.Post("/payments", "k", "1"), http.StatusTeapot, "in place of 202", outcome)
		if e.Status != http.StatusAccepted || e.Differs {
			t.Errorf("%s: the Event has the status %d, and differs is %t", outcome, e.Status, e.Differs)
		}
	}
}

// In shadow a handler can take the connection, as without this package.
func TestShadowHijack(t *testing.T) {
	s := newService(t, middleware.WithShadow())
	s.engine.POST("/payments", s.once, hijack)
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.NotStored)
}
