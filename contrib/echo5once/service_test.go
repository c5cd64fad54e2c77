package echo5once_test

import (
	"log/slog"
	"testing"

	"github.com/labstack/echo/v5"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/contrib/echo5once"
	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// service is an echo server behind a real HTTP server.
type service struct {
	*adaptertest.Service
	echo *echo.Echo
	once echo.MiddlewareFunc
	seen chan seen // by the middleware outside
}

// seen is what a logging middleware outside finds in c.Response().
type seen struct {
	status    int
	size      int64
	committed bool
	err       error
}

// newService returns a service without routes.
func newService(t *testing.T, opts ...middleware.Option) *service {
	t.Helper()
	framework := echo.New()
	s := &service{Service: adaptertest.New(t, framework), echo: framework, seen: make(chan seen, 100)}
	s.once = echo5once.Idempotency(s.Locker, keyfunc.Standard(keyfunc.Anonymous()), append([]middleware.Option{s.Observer()}, opts...)...)
	s.echo.Logger = slog.New(slog.DiscardHandler)
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			response, _ := echo.UnwrapResponse(c.Response())
			s.seen <- seen{response.Status, response.Size, response.Committed, err}
			return err
		}
	})
	return s
}

// counted counts the runs of h.
func (s *service) counted(h echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		s.Runs.Add(1)
		return h(c)
	}
}
