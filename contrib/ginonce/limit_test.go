package ginonce_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/onceguard/onceguard/middleware"
)

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
