package ginonce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	test "github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAdapter(t *testing.T) { framework.Tests(t) }

func of(h gin.HandlerFunc) test.Handler {
	return func(c test.Context) error {
		h(c.(testContext).Context)
		return nil
	}
}

// ways are those to answer that only gin has.
func ways() map[string]test.Handler {
	own := map[string]test.Handler{}
	for name, h := range map[string]gin.HandlerFunc{
		"Data":           func(c *gin.Context) { c.Data(http.StatusOK, "application/pdf", []byte("%PDF")) },
		"DataFromReader": func(c *gin.Context) { c.DataFromReader(200, 4, "text/x", bytes.NewBufferString("paid"), nil) },
		"Redirect":       func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/orders/1") },
		"a status after the body": func(c *gin.Context) {
			c.String(http.StatusCreated, "paid")
			c.Status(http.StatusTeapot)
		},
		"a status of -1": func(c *gin.Context) { c.Status(http.StatusCreated); c.JSON(-1, "paid") },
		"a header after WriteHeaderNow": func(c *gin.Context) {
			c.Status(http.StatusCreated)
			c.Writer.WriteHeaderNow()
			c.Header("Late", "1")
		},
		"WriteString": func(c *gin.Context) { _, _ = c.Writer.WriteString("paid") },
		"an error, and an answer": func(c *gin.Context) {
			_ = c.Error(io.EOF)
			c.String(http.StatusBadRequest, "no")
		},
		"Flush by gin": func(c *gin.Context) {
			c.String(http.StatusCreated, "a")
			c.Writer.Flush()
			_, _ = c.Writer.WriteString("b")
		},
		"Early Hints, and a Flush": func(c *gin.Context) {
			_ = test.EarlyHints(testContext{c})
			c.Writer.Flush()
		},
		"Early Hints below gin's writer": func(c *gin.Context) {
			c.Writer.(interface{ Unwrap() http.ResponseWriter }).Unwrap().WriteHeader(http.StatusEarlyHints)
			c.String(http.StatusCreated, "paid")
		},
		"Stream": func(c *gin.Context) {
			n := 0
			c.Stream(func(w io.Writer) bool {
				n++
				fmt.Fprintf(w, "%d,", n)
				return n < 3
			})
		},
		"what it sees": func(c *gin.Context) {
			var seen []any
			look := func() {
				seen = append(seen, c.Writer.Status(), c.Writer.Size(), c.Writer.Written(), c.Writer.Pusher() == nil)
			}
			look()
			c.Writer.WriteHeader(0)
			c.Status(http.StatusCreated)
			look()
			c.Writer.WriteHeaderNow()
			look()
			c.Status(http.StatusTeapot)
			look()
			c.String(http.StatusOK, "paid")
			look()
			c.JSON(http.StatusOK, seen)
		},
	} {
		own[name] = of(h)
	}
	return own
}

// limited is a body as gin-contrib/size makes it: it answers 413 itself when it is too long.
type limited struct {
	io.ReadCloser
	c *gin.Context
}

func (b limited) Read(p []byte) (n int, err error) {
	if n, err = b.ReadCloser.Read(p); n > 4 {
		err = errors.New("the body is too large")
		_ = b.c.Error(err)
		b.c.String(http.StatusRequestEntityTooLarge, "request too large")
		b.c.AbortWithStatus(http.StatusRequestEntityTooLarge)
		return 0, err
	}
	return n, err
}

// unzipped is the writer of gin-contrib/gzip 1.2.5 for a response with an error: it takes its Content-Encoding back at
// the first Write. It has no Unwrap.
type unzipped struct{ gin.ResponseWriter }

func (w unzipped) Write(p []byte) (int, error) {
	w.Header().Del("Given-Up")
	return w.ResponseWriter.Write(p)
}

var unzips = around(func(c *gin.Context) {
	c.Header("Given-Up", "gzip")
	c.Writer = unzipped{c.Writer}
})

// afterwards is a middleware that answers last.
func afterwards(answer gin.HandlerFunc) test.Middleware {
	return around(func(c *gin.Context) {
		c.Next()
		answer(c)
	})
}

var rows = map[string]test.Row{
	// An outer middleware that renders keeps the status that the handler has set, as without this package.
	"a status and an error, rendered outside": {
		Handler: func(c test.Context) error { _ = c.NoContent(http.StatusConflict); return io.EOF },
		Around:  []any{afterwards(func(c *gin.Context) { c.JSON(-1, "rendered") })},
		Want: []test.Want{{
			Status: http.StatusConflict, Body: `"rendered"`, Outcome: middleware.Unknown, LeftOpen: "once, render",
		}},
	},
	// fault: the body is too long for an outer middleware that answers itself -> one answer, not another after it
	"body limit that answers": {
		Handler: test.Pay,
		Around:  []any{around(func(c *gin.Context) { c.Request.Body = limited{c.Request.Body, c} })},
		Want: []test.Want{{
			Status: http.StatusRequestEntityTooLarge, Body: "request too large", Outcome: middleware.TooLarge, Send: "too long",
		}},
	},
	// In shadow an outer middleware may answer in place of a handler that has only set a status, as without this one.
	"a status in shadow": {
		Handler: func(c test.Context) error { return c.NoContent(http.StatusAccepted) },
		Around: []any{middleware.WithShadow(), afterwards(func(c *gin.Context) {
			if !c.Writer.Written() {
				c.String(http.StatusTeapot, "in place of %d", c.Writer.Status())
			}
		})},
		Want: test.Stored(http.StatusTeapot, "in place of 202"),
	},
	"early hints below a writer without Unwrap": {
		Handler: func(c test.Context) error {
			_ = test.EarlyHints(c)
			return test.Pay(c)
		},
		Around: []any{unzips},
		Want:   test.Stored(http.StatusOK, "paid"),
	},
	// A middleware outside may decide on its header when the body begins.
	"a header of an outer middleware": {
		Handler: test.Pay,
		Around:  []any{unzips},
		Want:    test.Stored(http.StatusCreated, "paid"),
	},
	"a header of an outer middleware, in shadow": {
		Handler: test.Pay,
		Around:  []any{unzips, middleware.WithShadow()},
		Want:    test.Stored(http.StatusCreated, "paid"),
	},
	"hijacked, and then written": {
		Handler: of(func(c *gin.Context) {
			conn, _, _ := c.Writer.Hijack()
			defer conn.Close()
			if c.Writer.Written() {
				_, _ = io.WriteString(conn, "HTTP/1.0 201 Created\r\n\r\npaid")
			}
		}),
		Want: []test.Want{{Status: http.StatusCreated, Body: "paid", Outcome: middleware.NotStored}},
	},
	// A status alone is the response of a transaction once it is sent. After a rollback there is none.
	"a status in a transaction": test.RolledBack(0, func(c test.Context, j *test.Journal) error {
		return j.InTx(c, of(func(c *gin.Context) { c.Status(http.StatusAccepted); c.Writer.WriteHeaderNow() }))
	}, test.Stored(http.StatusAccepted, "")),
	"a status after a rollback": test.RolledBack(1, func(c test.Context, j *test.Journal) error {
		_ = j.InTx(c, test.Pay)
		if got := c.Seen(); got != (test.Seen{Status: http.StatusOK}) {
			return nil
		}
		return c.NoContent(http.StatusPaymentRequired)
	}, test.Stored(http.StatusPaymentRequired, "")),
}

// A handler of NoRoute is protected, also if it sets a status alone.
func TestNoRouteHandler(t *testing.T) {
	for body, h := range map[string]gin.HandlerFunc{
		"proxied": func(c *gin.Context) { c.String(http.StatusAccepted, "proxied") },
		"":        func(c *gin.Context) { c.Status(http.StatusAccepted) },
	} {
		s := framework.NewSite(t)
		s.Router.Use(s.Once)
		s.Router.Add(http.MethodGet, "/", test.Pay)
		s.Router.(router).NoRoute(h)
		for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
			a, e := s.Pay("1"), <-s.Events
			if a.Status != http.StatusAccepted || a.Body != body || e.Outcome != outcome {
				t.Errorf("%+v, outcome %s, want %s", a, e.Outcome, outcome)
			}
		}
	}
}

// CloseNotify, and with it a stream, ends with the run, and not when the client leaves: its retry gets all of it.
func TestClientLeavesStream(t *testing.T) {
	s := framework.NewSite(t)
	ctx, leave := context.WithCancel(t.Context())
	s.Router.Use(around(func(c *gin.Context) {
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}))
	s.Protect(of(func(c *gin.Context) {
		leave()
		n := 0
		c.Stream(func(w io.Writer) bool {
			n++
			_, _ = io.WriteString(w, "x")
			return n < 4
		})
	}))
	if a := s.Pay("1"); a.Body != "xxxx" {
		t.Errorf("%q", a.Body)
	}
}

// A stream ends when its run is given up.
func TestStreamEndsWithTheRun(t *testing.T) {
	s := framework.NewSite(t, middleware.WithMaxDuration(time.Millisecond))
	ended := make(chan bool, 1)
	s.Protect(of(func(c *gin.Context) {
		ended <- c.Stream(func(io.Writer) bool {
			<-c.Request.Context().Done()
			return true
		})
	}))
	if a := s.Pay("1"); !<-ended {
		t.Errorf("%+v", a)
	}
}
