package ginonce_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"

	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

func TestAdapter(t *testing.T) { framework.Tests(t) }

func pay(c *gin.Context) { c.String(http.StatusCreated, "paid") }

// byHand is how one would use middleware.Idempotency with gin without this package.
func byHand(t *testing.T, s *service) gin.HandlerFunc {
	once := middleware.Idempotency(s.OtherLocker(), keyfunc.Standard(keyfunc.Anonymous()), s.Observer())
	return func(c *gin.Context) {
		once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		c.Abort()
	}
}

// Where the middleware answers itself, no later handler runs, and those before it see that the chain was aborted.
func TestAnswersAbortTheChain(t *testing.T) {
	s := newService(t)
	aborted := make(chan bool, 10)
	s.engine.Use(func(c *gin.Context) {
		c.Next()
		aborted <- c.IsAborted()
	})
	s.engine.POST("/payments", s.once, s.counted(func(*gin.Context) {}), s.counted(pay))
	for i, test := range []struct {
		body    string
		status  int
		aborted bool
	}{{"1", 201, false}, {"1", 201, true}, {"2", 422, true}} {
		a := s.Post("/payments", "k", test.body)
		if got := <-aborted; a.Status != test.status || got != test.aborted {
			t.Errorf("request %d: status %d, aborted %v; want %d, %v", i+1, a.Status, got, test.status, test.aborted)
		}
	}
	s.WantRuns(2)
}

// An outer middleware that renders keeps the status that the handler has set, as without this package.
func TestOuterMiddlewareKeepsTheStatus(t *testing.T) {
	s := newService(t)
	s.engine.Use(func(c *gin.Context) {
		c.Next()
		c.JSON(-1, "rendered")
	})
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		c.Status(http.StatusConflict)
		_ = c.Error(io.EOF)
	})
	s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, `"rendered"`, middleware.Unknown)
}

func TestBody(t *testing.T) {
	s := newService(t)
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		var first, second struct{ Amount int }
		err := errors.Join(c.ShouldBindBodyWith(&first, binding.JSON), c.ShouldBindBodyWith(&second, binding.JSON))
		c.String(http.StatusOK, "%d %d %v", first.Amount, second.Amount, err)
	})
	s.Want(s.Post("/payments", "k", `{"amount":7}`), http.StatusOK, "7 7 <nil>", middleware.Executed)
}

// A client that leaves does not end the stream: its retry gets all of it.
func TestClientLeavesStream(t *testing.T) {
	s := newService(t)
	left := make(chan struct{})
	var gone <-chan struct{} // net/http cancels the request's own context when the client has left
	s.engine.POST("/payments", func(c *gin.Context) {
		gone = c.Request.Context().Done()
		c.Next()
	}, s.once, s.counted(func(c *gin.Context) {
		n := 0
		c.Stream(func(w io.Writer) bool {
			if n++; n == 2 {
				close(left)
				<-gone
			}
			_, _ = io.WriteString(w, "x")
			return n < 4
		})
	}))
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.Server.URL+"/payments", nil)
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "application/json")
	res, err := s.Server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	<-left
	cancel()
	res.Body.Close()
	s.WantEvent(middleware.Executed)
	s.Want(s.Post("/payments", "k", ""), http.StatusOK, "xxxx", middleware.Replayed)
	s.WantRuns(1)
}

// A stream ends when its run is given up.
func TestStreamEndsWithTheRun(t *testing.T) {
	s := newService(t, middleware.WithMaxDuration(time.Millisecond))
	ended := make(chan bool, 1)
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		ended <- c.Stream(func(w io.Writer) bool {
			<-c.Request.Context().Done()
			_, _ = io.WriteString(w, "x")
			return true
		})
	})
	if a := s.Post("/payments", "k", "1"); a.Status != http.StatusOK || !<-ended {
		t.Errorf("status %d", a.Status)
	}
}

// limited is a body as gin-contrib/size makes it: it answers 413 itself when it is too long.
type limited struct {
	io.ReadCloser
	c    *gin.Context
	left int64
}

func (b *limited) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		err = errors.New("the body is too large")
		_ = b.c.Error(err)
		b.c.Header("Connection", "close")
		b.c.String(http.StatusRequestEntityTooLarge, "request too large")
		b.c.AbortWithStatus(http.StatusRequestEntityTooLarge)
		return 0, err
	}
	return n, err
}

// A body that is longer than an outer middleware allows is answered with 413, and is not to be sent again.
//
// fault: the body is longer than a limit outside, and has no Content-Length -> 413 and one answer, not 400 after another
func TestBodyLimitOutside(t *testing.T) {
	for name, test := range map[string]struct {
		limit gin.HandlerFunc
		body  string // that the client gets
	}{
		"http.MaxBytesReader": {func(c *gin.Context) {
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 4)
		}, "body-too-large"},
		"it answers itself": {func(c *gin.Context) { c.Request.Body = &limited{c.Request.Body, c, 4} }, "request too large"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.engine.Use(test.limit)
			s.engine.POST("/payments", s.once, s.counted(pay))
			a := s.SendBody(http.MethodPost, "/payments", "k", io.MultiReader(strings.NewReader("too long")))
			s.Want(a, http.StatusRequestEntityTooLarge, "*", middleware.TooLarge)
			if !strings.Contains(a.Body, test.body) || strings.Contains(a.Body, "request too large{") || a.Header.Get("X-Should-Retry") == "true" {
				t.Errorf("got %q, X-Should-Retry %q; want %q alone", a.Body, a.Header.Get("X-Should-Retry"), test.body)
			}
			s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "*", middleware.Executed)
			s.WantRuns(1)
		})
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

// What was written in a transaction that is rolled back is not the response. A status alone is one once it is sent.
func TestRolledBackStatus(t *testing.T) {
	for name, test := range map[string]struct {
		failures int
		inside   func(*gin.Context)
		after    int // the status that is set after the transaction
		want     error
		status   int
	}{
		"an error as a status": {1, pay, http.StatusPaymentRequired, adaptertest.ErrRolledBack, 402},
		"sent at once":         {0, func(c *gin.Context) { c.Status(http.StatusAccepted); c.Writer.WriteHeaderNow() }, 0, nil, 202},
		"no response yet":      {0, func(c *gin.Context) { c.Status(http.StatusAccepted) }, http.StatusPaymentRequired, journal.ErrNoResponse, 402},
	} {
		t.Run(name, func(t *testing.T) {
			j := &adaptertest.Journal{Failures: test.failures}
			s := newService(t, middleware.WithJournal(j))
			s.engine.POST("/payments", s.once, func(c *gin.Context) {
				err := j.InTx(c.Request.Context(), func() { test.inside(c) })
				if !errors.Is(err, test.want) || err != nil && c.Writer.Written() {
					t.Errorf("error %v, written %v; want %v", err, c.Writer.Written(), test.want)
				}
				if test.failures > 0 && c.Writer.Status() != http.StatusOK {
					t.Errorf("status %d after the rollback", c.Writer.Status())
				}
				if test.after != 0 {
					c.Status(test.after)
				}
			})
			s.Want(s.Pay("k", "1"), test.status, "", middleware.Executed)
			s.Want(s.Pay("k", "1"), test.status, "", middleware.Replayed)
		})
	}
}

// With ContextWithFallback the gin context has the run, its deadline, and the values of the outer context.
func TestContextWithFallback(t *testing.T) {
	type ctxKey struct{}
	s := newService(t)
	s.engine.ContextWithFallback = true
	s.engine.Use(func(c *gin.Context) {
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), ctxKey{}, "outer"))
	})
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		run := middleware.FromContext(c.Request.Context())
		_, limited := c.Deadline()
		if run == nil || run != middleware.FromContext(c) || c.Value(ctxKey{}) != "outer" || !limited {
			t.Errorf("the run is %v and %v, the value %v, and a deadline is there: %v", run, middleware.FromContext(c), c.Value(ctxKey{}), limited)
		}
		pay(c)
	})
	s.Want(s.Pay("k", "1"), http.StatusCreated, "paid", middleware.Executed)
}

// A handler of NoRoute is protected.
func TestNoRouteHandler(t *testing.T) {
	s := newService(t)
	s.engine.Use(s.once)
	s.engine.GET("/payments", pay)
	s.engine.NoRoute(s.counted(func(c *gin.Context) { c.String(http.StatusOK, "proxied") }))
	s.Want(s.Post("/nowhere", "k", "1"), http.StatusOK, "proxied", middleware.Executed)
	s.Want(s.Post("/nowhere", "k", "1"), http.StatusOK, "proxied", middleware.Replayed)
	s.WantRuns(1)
}

// A status that was set beside an error is the outer middleware's to use, and is not stored.
func TestStatusAndErrorRenderedOutside(t *testing.T) {
	s := newService(t)
	s.engine.Use(func(c *gin.Context) {
		if c.Next(); len(c.Errors) > 0 && !c.Writer.Written() {
			c.String(http.StatusPaymentRequired, c.Errors.Last().Error())
		}
	})
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		c.Status(http.StatusBadRequest)
		_ = c.Error(adaptertest.ErrNoCover)
	})
	adaptertest.WantLeftOpen(t, s.Want(s.Pay("k", "1"), http.StatusPaymentRequired, "no cover", middleware.Unknown))
}
