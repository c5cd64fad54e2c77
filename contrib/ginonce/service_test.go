package ginonce_test

import (
	"io"
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

// service is a gin engine behind a real HTTP server.
type service struct {
	*adaptertest.Service
	engine *gin.Engine
	once   gin.HandlerFunc
	seen   chan seen // by the middleware outside
}

// seen is what a logging middleware outside finds in c.Writer.
type seen struct {
	status, size int
	written      bool
}

// newService returns a service without routes.
func newService(t *testing.T, opts ...middleware.Option) *service {
	t.Helper()
	framework := gin.New()
	s := &service{Service: adaptertest.New(t, framework), engine: framework, seen: make(chan seen, 100)}
	s.once = ginonce.Idempotency(s.Locker, keyfunc.Standard(keyfunc.Anonymous()), append([]middleware.Option{s.Observer()}, opts...)...)
	s.engine.Use(func(c *gin.Context) {
		c.Next()
		s.seen <- seen{c.Writer.Status(), c.Writer.Size(), c.Writer.Written()}
	})
	return s
}

// counted counts the runs of h.
func (s *service) counted(h gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		s.Runs.Add(1)
		h(c)
	}
}
