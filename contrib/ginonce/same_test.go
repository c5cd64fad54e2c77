package ginonce_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/middleware"
)

// handlers answer in the ways that only gin has.
func handlers() map[string]adaptertest.Handler {
	own := adaptertest.AfterEarlyHints()
	for name, h := range map[string]gin.HandlerFunc{
		"Data":           func(c *gin.Context) { c.Data(http.StatusOK, "application/pdf", []byte("%PDF")) },
		"DataFromReader": func(c *gin.Context) { c.DataFromReader(200, 4, "text/x", bytes.NewBufferString("paid"), nil) },
		"XML":            func(c *gin.Context) { c.XML(http.StatusConflict, gin.H{"id": 1}) },
		"File":           func(c *gin.Context) { c.File("ginonce.go") },
		"FileAttachment": func(c *gin.Context) { c.FileAttachment("ginonce.go", "invoice.txt") },
		"Redirect":       func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/orders/1") },
		"Status":         func(c *gin.Context) { c.Status(http.StatusNoContent) },
		"Status, then another": func(c *gin.Context) {
			c.Status(http.StatusAccepted)
			c.Status(http.StatusCreated)
		},
		"a status after the body": func(c *gin.Context) {
			c.String(http.StatusCreated, "paid")
			c.Status(http.StatusTeapot)
		},
		"a status of -1":  func(c *gin.Context) { c.Status(http.StatusCreated); c.JSON(-1, "paid") },
		"WriteHeaderNow":  func(c *gin.Context) { c.Status(http.StatusCreated); c.Writer.WriteHeaderNow() },
		"Write":           func(c *gin.Context) { _, _ = io.WriteString(c.Writer, "<p>paid</p>") },
		"WriteString":     func(c *gin.Context) { _, _ = c.Writer.WriteString("paid") },
		"Abort":           func(c *gin.Context) { c.String(http.StatusOK, "paid"); c.Abort() },
		"AbortWithStatus": func(c *gin.Context) { c.AbortWithStatus(http.StatusBadRequest) },
		"AbortWithStatusJSON": func(c *gin.Context) {
			c.AbortWithStatusJSON(http.StatusUnprocessableEntity, gin.H{"error": "amount"})
		},
		"AbortWithError": func(c *gin.Context) { _ = c.AbortWithError(http.StatusBadRequest, io.EOF) },
		"an error, and an answer": func(c *gin.Context) {
			_ = c.Error(io.EOF)
			c.String(http.StatusBadRequest, "no")
		},
		"Bind fails": func(c *gin.Context) {
			var payment struct {
				Missing string `json:"missing" binding:"required"`
			}
			_ = c.Bind(&payment)
		},
		"Flush by gin": func(c *gin.Context) {
			c.String(http.StatusCreated, "a")
			c.Writer.Flush()
			_, _ = c.Writer.WriteString("b")
		},
		"Flush by a controller": func(c *gin.Context) {
			c.Status(http.StatusCreated)
			_ = http.NewResponseController(c.Writer).Flush()
			_, _ = c.Writer.WriteString("b")
		},
		"Early Hints, and a Flush": func(c *gin.Context) {
			earlyHints(c)
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
		"SSEvent": func(c *gin.Context) {
			n := 0
			c.Stream(func(io.Writer) bool {
				n++
				c.SSEvent("progress", n)
				return n < 3
			})
		},
	} {
		own[name] = func(c adaptertest.Context) error { h(c.(testContext).Context); return nil }
	}
	return own
}

func earlyHints(c *gin.Context) { _ = testContext{c}.EarlyHints() }

// A middleware outside whose writer has no Unwrap keeps a 103 from being sent. The response is the same.
func TestEarlyHintsUnderAnotherWriter(t *testing.T) {
	s := newService(t)
	s.engine.Use(func(c *gin.Context) { c.Writer = struct{ gin.ResponseWriter }{c.Writer} })
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		earlyHints(c)
		c.String(http.StatusCreated, "paid")
	})
	a := s.Post("/payments", "k", "1")
	s.Want(a, http.StatusOK, "paid", middleware.Executed)
	if len(a.Early) > 0 {
		t.Errorf("before the response there is %v", a.Early)
	}
}

// unzipped is the writer of gin-contrib/gzip 1.2.5 for a response with an error: it takes its Content-Encoding back at
// the first Write.
type unzipped struct{ gin.ResponseWriter }

func (w unzipped) Write(p []byte) (int, error) {
	w.Header().Del("Content-Encoding")
	return w.ResponseWriter.Write(p)
}

// A middleware outside may decide on its header when the body begins.
func TestHeaderOfAnOuterMiddleware(t *testing.T) {
	for name, opts := range map[string][]middleware.Option{"acting": nil, "in shadow": {middleware.WithShadow()}} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, opts...)
			s.engine.Use(func(c *gin.Context) {
				c.Header("Content-Encoding", "gzip")
				c.Writer = unzipped{c.Writer}
			})
			s.engine.POST("/payments", s.once, func(c *gin.Context) {
				c.Status(http.StatusConflict)
				_, _ = c.Writer.WriteString("sold out")
			})
			for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
				a := s.Post("/payments", "k", "1")
				s.Want(a, http.StatusConflict, "sold out", outcome)
				if encoding := a.Header["Content-Encoding"]; encoding != nil {
					t.Errorf("%s: Content-Encoding %q of a plain body", outcome, encoding)
				}
				if got := a.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" { // net/http has detected it
					t.Errorf("%s: Content-Type %q", outcome, got)
				}
			}
		})
	}
}

// zipping is the writer of gin-contrib/gzip 1.2.5 for other responses.
type zipping struct {
	gin.ResponseWriter
	zip *gzip.Writer
}

func (w zipping) Write(p []byte) (int, error) {
	w.Header().Del("Content-Length")
	return w.zip.Write(p)
}

func (w zipping) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// fault: the handler sends a 1xx below a compressor -> what the compressor adds to the header is not stored
func TestEarlyHintsBelowGzip(t *testing.T) {
	s := newService(t)
	zipped := true
	s.engine.Use(func(c *gin.Context) {
		if !zipped {
			return
		}
		c.Header("Content-Encoding", "gzip")
		w := zipping{c.Writer, gzip.NewWriter(c.Writer)}
		c.Writer = w
		c.Next()
		_ = w.zip.Close()
	})
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		earlyHints(c)
		c.String(http.StatusCreated, "paid")
	})
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed, middleware.Replayed} {
		a := s.Post("/payments", "k", "1") // the Transport decodes
		s.Want(a, http.StatusOK, "paid", outcome)
		zipped = !zipped
	}
}

// In shadow, too, a handler can send the header before the body, and change it no more.
func TestShadowWriteHeaderNow(t *testing.T) {
	s := newService(t, middleware.WithShadow())
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		c.Status(http.StatusCreated)
		c.Writer.WriteHeaderNow()
		c.Header("Late", "1")
	})
	a := s.Post("/payments", "k", "1")
	s.Want(a, http.StatusCreated, "", middleware.Executed)
	if a.Header.Get("Late") != "" || !(<-s.Seen).Written {
		t.Error("the header was not sent at once")
	}
}

// The handler sees in c.Writer what it sees without this package.
func TestWriterSeenByTheHandler(t *testing.T) {
	var got []string
	h := func(c *gin.Context) {
		got = nil
		look := func(where string) {
			got = append(got, fmt.Sprint(where, ": ", c.Writer.Status(), c.Writer.Size(), c.Writer.Written(), c.Writer.Pusher() == nil))
		}
		look("at first")
		if early := c.GetHeader("Idempotency-Key") == "early"; early {
			earlyHints(c)
			look("early hints")
		}
		c.Writer.WriteHeader(0)
		c.Status(http.StatusCreated)
		look("status")
		c.Writer.WriteHeaderNow()
		look("header")
		c.Status(http.StatusTeapot)
		look("another status")
		c.String(http.StatusOK, "paid")
		look("body")
		c.Writer.Flush()
		look("flush")
	}
	s := newService(t)
	s.engine.POST("/bare", h)
	s.engine.POST("/payments", s.once, h)
	for _, key := range []string{"k", "early"} {
		s.Post("/bare", key, "{}")
		want := got
		s.Post("/payments", key, "{}")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the handler sees\n%q, without this package\n%q", key, got, want)
		}
	}
}

// Put around c.Next by hand, the middleware sees what handlers write only as far as gin's own writer lets it.
func TestWrappedByHand(t *testing.T) {
	for name, test := range map[string]struct {
		h       gin.HandlerFunc
		status  int // of a retry
		outcome middleware.Outcome
	}{
		"a redirect becomes an empty 200": {func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/orders/1") }, 200, middleware.Replayed},
		"a status becomes an empty 200":   {func(c *gin.Context) { c.Status(http.StatusAccepted) }, 200, middleware.Replayed},
		"JSON cannot be replayed":         {func(c *gin.Context) { c.JSON(201, gin.H{"id": 1}) }, 409, middleware.NotReplayable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			once := byHand(t, s)
			s.engine.POST("/payments", once, test.h)
			s.Post("/payments", "k", "{}")
			<-s.Events
			s.Want(s.Post("/payments", "k", "{}"), test.status, "*", test.outcome)
		})
	}
}
