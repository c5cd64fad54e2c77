package ginonce_test

import (
	"errors"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/onceguard/onceguard/contrib/ginonce"
	test "github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

var framework = test.Framework{
	New: newRouter,
	Idempotency: func(l *lock.Locker, key keyfunc.Func, opts ...middleware.Option) test.Middleware {
		return around(ginonce.Idempotency(l, key, opts...))
	},
	Recover: around(gin.RecoveryWithWriter(nil)),
	Limit: around(func(c *gin.Context) {
		c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 4)
	}),
	Ways:       ways(),
	Rows:       rows,
	NotFound:   "404 page not found",
	NotAllowed: "405 method not allowed",
	LateStatus: http.StatusOK,
}

// testContext is a gin.Context as the tests of all frameworks want it.
type testContext struct{ *gin.Context }

func (c testContext) Request() *http.Request      { return c.Context.Request }
func (c testContext) Writer() http.ResponseWriter { return c.Context.Writer }

func (c testContext) String(status int, body string) error {
	c.Context.String(status, "%s", body)
	return nil
}

func (c testContext) JSON(status int, value any) error {
	c.Context.JSON(status, value)
	return nil
}

func (c testContext) NoContent(status int) error {
	if c.Status(status); status < http.StatusOK {
		c.Context.Writer.WriteHeaderNow()
	}
	return nil
}

func (c testContext) Fail(status int) error {
	_ = c.AbortWithError(status, errors.New("failed"))
	return nil
}

func (c testContext) Seen() test.Seen {
	w := c.Context.Writer
	return test.Seen{Status: w.Status(), Size: max(int64(w.Size()), 0), Written: w.Written()}
}

// around is a middleware of gin, which calls the next handlers by itself.
func around(m gin.HandlerFunc) test.Middleware {
	return func(test.Handler) test.Handler {
		return func(c test.Context) error {
			m(c.(testContext).Context)
			return lastError(c)
		}
	}
}

func lastError(c test.Context) error {
	if err := c.(testContext).Errors.Last(); err != nil {
		return err.Err
	}
	return nil
}

func native(m test.Middleware) gin.HandlerFunc {
	h := m(func(c test.Context) error {
		c.(testContext).Next()
		return lastError(c)
	})
	return func(c *gin.Context) { _ = h(testContext{c}) } // what it returns is in c.Errors
}

// router is a gin engine.
type router struct{ *gin.Engine }

func newRouter() test.Router {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	return router{engine}
}

func (r router) Use(m test.Middleware) { r.Engine.Use(native(m)) }

func (r router) Add(method, path string, h test.Handler, inside ...test.Middleware) {
	var chain []gin.HandlerFunc
	for _, m := range inside {
		chain = append(chain, native(m))
	}
	r.Handle(method, path, append(chain, func(c *gin.Context) {
		if err := h(testContext{c}); err != nil {
			_ = c.Error(err)
		}
	})...)
}

func (router) HandleErrors(func(error, test.Context)) {}
