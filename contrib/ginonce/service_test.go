package ginonce_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/contrib/ginonce"
	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	goleak.VerifyTestMain(m)
}

var framework = adaptertest.Framework[gin.HandlerFunc]{
	Package:     "ginonce",
	New:         newRouter,
	Idempotency: ginonce.Idempotency,
	User: func(fn func(adaptertest.Context) string) keyfunc.Func {
		if fn == nil {
			return ginonce.User(nil)
		}
		return ginonce.User(func(c *gin.Context) string { return fn(testContext{c}) })
	},
	Recover:    gin.RecoveryWithWriter(nil),
	Handlers:   handlers(),
	NotFound:   "404 page not found",
	NotAllowed: "405 method not allowed",
	Recovered:  "",
	LateStatus: http.StatusOK,
}

// testContext is a gin.Context as the tests of all frameworks want it.
type testContext struct{ *gin.Context }

func (c testContext) Request() *http.Request      { return c.Context.Request }
func (c testContext) SetRequest(r *http.Request)  { c.Context.Request = r }
func (c testContext) Writer() http.ResponseWriter { return c.Context.Writer }
func (c testContext) Get(key string) any          { return c.Context.Value(key) }
func (c testContext) Set(key string, value any)   { c.Context.Set(key, value) }
func (c testContext) SetCookie(k *http.Cookie)    { http.SetCookie(c.Writer(), k) }

func (c testContext) String(status int, body string) error {
	c.Context.String(status, "%s", body)
	return nil
}

func (c testContext) JSON(status int, value any) error {
	c.Context.JSON(status, value)
	return nil
}

func (c testContext) NoContent(status int) error {
	c.Status(status)
	return nil
}

// EarlyHints sends a 103, which gin takes for the final status.
func (c testContext) EarlyHints() error {
	c.Header("Link", "</style.css>; rel=preload")
	c.Status(http.StatusEarlyHints)
	c.Context.Writer.WriteHeaderNow()
	return nil
}

func (c testContext) Hijack() (net.Conn, error) {
	conn, _, err := c.Context.Writer.Hijack()
	if err == nil && !c.Context.Writer.Written() {
		err = errors.New("it is not Written")
	}
	return conn, err
}

func (c testContext) Seen() adaptertest.Seen {
	w := c.Context.Writer
	return adaptertest.Seen{Status: w.Status(), Size: max(int64(w.Size()), 0), Written: w.Written()}
}

// router is a gin engine.
type router struct{ *gin.Engine }

func newRouter() adaptertest.Router[gin.HandlerFunc] {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	return router{engine}
}

func (r router) Use(m gin.HandlerFunc) { r.Engine.Use(m) }

func (r router) Add(method, path string, h adaptertest.Handler, inside ...gin.HandlerFunc) {
	r.Handle(method, path, append(inside, func(c *gin.Context) {
		if err := h(testContext{c}); err != nil {
			_ = c.Error(err)
		}
	})...)
}

func (router) Middleware(m adaptertest.Middleware) gin.HandlerFunc {
	h := m(func(c adaptertest.Context) error {
		c.(testContext).Next()
		if err := c.(testContext).Errors.Last(); err != nil {
			return err.Err
		}
		return nil
	})
	return func(c *gin.Context) { _ = h(testContext{c}) } // what it returns is in c.Errors
}

func (router) LeaveErrors() {}

// service is a site on whose engine a test adds routes itself.
type service struct {
	*adaptertest.Site[gin.HandlerFunc]
	engine *gin.Engine
	once   gin.HandlerFunc
}

// newService returns a service without routes.
func newService(t *testing.T, opts ...middleware.Option) *service {
	t.Helper()
	s := framework.NewSite(t, opts...)
	return &service{s, s.Router.(router).Engine, s.Once}
}

// counted counts the runs of h.
func (s *service) counted(h gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		s.Runs.Add(1)
		h(c)
	}
}
