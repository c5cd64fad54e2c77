package echoonce_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/middleware"
)

// In shadow every request runs, and each run has a Key of its own: what is behind the handler must not take two runs for
// one because both have none.
func TestShadow(t *testing.T) {
	s := newService(t, middleware.WithShadow())
	keys := make(chan string, 10)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			err := next(c)
			if c.Request() != r {
				t.Error("c.Request() is not as it was")
			}
			return err
		}
	})
	s.echo.POST("/payments", s.counted(func(c echo.Context) error {
		keys <- middleware.FromContext(c.Request().Context()).Key()
		body, err := io.ReadAll(c.Request().Body)
		if string(body) == "first" {
			entered <- struct{}{}
			<-leave
		}
		if err != nil || len(body) == 0 {
			t.Errorf("the handler reads %q, %v", body, err)
		}
		return c.String(http.StatusCreated, "paid")
	}), s.once)
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

// In shadow a handler can take the connection, as without this package.
func TestShadowHijack(t *testing.T) {
	s := newService(t, middleware.WithShadow())
	s.echo.POST("/payments", hijack, s.once)
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.NotStored)
}
