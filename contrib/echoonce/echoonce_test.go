package echoonce_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

func TestAdapter(t *testing.T) { framework.Tests(t) }

// fault: the deadline of echo's ContextTimeout outside passes, and the handler returns its error -> 503 as from echo alone,
// and no retry runs in the time of the lease, because the effect may be there
//
// fault: the body is longer than the BodyLimit, and has no Content-Length -> 413, not 400
func TestEcho(t *testing.T) { framework.EchoTests(t) }

// handlers answer in the ways that only echo v4 has.
func handlers() map[string]adaptertest.Handler {
	own := adaptertest.AfterEarlyHints()
	for name, h := range map[string]echo.HandlerFunc{
		"Blob": func(c echo.Context) error { return c.Blob(http.StatusOK, "application/pdf", []byte("%PDF")) },
		"XML":  func(c echo.Context) error { return c.XML(http.StatusConflict, "paid") },
		"HTML": func(c echo.Context) error { return c.HTML(http.StatusOK, "<p>paid</p>") },
		"Stream": func(c echo.Context) error {
			return c.Stream(http.StatusOK, "text/x", bytes.NewBufferString("paid"))
		},
		"Redirect":                  func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/orders/1") },
		"File":                      func(c echo.Context) error { return c.File("echoonce.go") },
		"Attachment":                func(c echo.Context) error { return c.Attachment("echoonce.go", "invoice.txt") },
		"an error":                  func(echo.Context) error { return adaptertest.ErrNoCover },
		"an HTTPError":              func(echo.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "no cover") },
		"an HTTPError, sent before": func(c echo.Context) error { c.Error(echo.ErrConflict); return nil },
		"Bind fails": func(c echo.Context) error {
			var payment struct{ Amount int }
			c.Request().Header.Set("Content-Type", "text/x")
			return c.Bind(&payment)
		},
		"Before and After": func(c echo.Context) error {
			c.Response().Before(func() { c.Response().Header().Set("X-Before", "1") })
			return c.String(http.StatusCreated, "paid")
		},
		"Flush by echo": func(c echo.Context) error {
			_ = c.String(http.StatusCreated, "a")
			c.Response().Flush()
			_, err := c.Response().Write([]byte("b"))
			return err
		},
		"Early Hints, and an error": func(c echo.Context) error {
			_ = testContext{c}.EarlyHints()
			return adaptertest.ErrNoCover
		},
		"Early Hints below echo's writer": func(c echo.Context) error {
			c.Response().Writer.WriteHeader(http.StatusEarlyHints)
			return c.NoContent(http.StatusCreated)
		},
	} {
		own[name] = func(c adaptertest.Context) error { return h(c.(testContext).Context) }
	}
	return own
}

// In echo's own WrapMiddleware, what the HTTPErrorHandler writes comes too late.
func TestWrappedByHand(t *testing.T) {
	s := framework.NewSite(t)
	s.Once = echo.WrapMiddleware(middleware.Idempotency(s.OtherLocker(), keyfunc.Standard(keyfunc.Anonymous()), s.Observer()))
	s.Protect(func(adaptertest.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired) })
	s.Want(s.Pay("k", "1"), http.StatusOK, "*", middleware.Executed)
	s.Want(s.Pay("k", "1"), http.StatusOK, "", middleware.Replayed)
}

// A context of the application, as echo's documentation shows it, reaches the handler.
func TestOwnContext(t *testing.T) {
	type myContext struct{ echo.Context }
	s := framework.NewSite(t)
	e := s.Router.(router)
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return next(&myContext{c}) }
	})
	e.POST("/payments", func(c echo.Context) error {
		if _, own := c.(*myContext); !own {
			t.Error("the handler has another context")
		}
		return c.NoContent(http.StatusCreated)
	}, s.Once)
	s.Want(s.Pay("k", "1"), http.StatusCreated, "", middleware.Executed)
}
