package adaptertest

import (
	"io"
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/middleware"
)

// hijack answers on the connection itself.
func hijack(c Context) error {
	conn, err := c.Hijack()
	if err != nil {
		return c.String(http.StatusTeapot, err.Error())
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 4\r\n\r\npaid")
	return err
}

// A connection that was hijacked has had its response: a retry does not run.
func (f Framework[M]) hijacked(t *testing.T) {
	s := f.NewSite(t)
	s.Protect(hijack)
	s.Want(s.Pay("k", "1"), http.StatusCreated, "paid", middleware.NotStored)
	s.Want(s.Pay("k", "1"), http.StatusConflict, "*", middleware.NotReplayable)
	s.WantRuns(1)
}

// In shadow a handler can take the connection, as without the package.
func (f Framework[M]) shadowHijack(t *testing.T) {
	s := f.NewSite(t, middleware.WithShadow())
	s.Protect(hijack)
	s.Want(s.Pay("k", "1"), http.StatusCreated, "paid", middleware.NotStored)
}

// In shadow every request runs, and each run has a Key of its own: what is behind the handler must not take two runs for
// one because both have none.
func (f Framework[M]) shadow(t *testing.T) {
	s := f.NewSite(t, middleware.WithShadow())
	keys := make(chan string, 10)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.Use(func(next Handler) Handler {
		return func(c Context) error {
			r := c.Request()
			err := next(c)
			if c.Request() != r {
				t.Error("the request is not as it was")
			}
			return err
		}
	})
	s.Protect(func(c Context) error {
		keys <- middleware.FromContext(c.Request().Context()).Key()
		body, err := io.ReadAll(c.Request().Body)
		if string(body) == "first" {
			entered <- struct{}{}
			<-leave
		}
		if err != nil || len(body) == 0 {
			t.Errorf("the handler reads %q, %v", body, err)
		}
		return pay(c)
	})
	first := make(chan Answer, 1)
	go func() { first <- s.Pay("k", "first") }()
	<-entered
	s.Want(s.Pay("k", "other"), http.StatusCreated, "paid", middleware.Reused)
	close(leave)
	s.Want(<-first, http.StatusCreated, "paid", middleware.Executed)
	go func() { <-entered }()
	if e := s.Want(s.Pay("k", "first"), http.StatusCreated, "paid", middleware.Replayed); e.Differs {
		t.Error("the same response differs")
	}
	s.Want(s.Pay("", "no key"), http.StatusCreated, "paid", middleware.Unprotected)
	s.WantRuns(4)
	for known := map[string]bool{}; len(known) < 3; {
		key := <-keys
		if key == "" || known[key] {
			t.Fatalf("the key %q, after %v", key, known)
		}
		known[key] = true
	}
}
