package echo5once_test

import (
	"bytes"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

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

// handlers answer in the ways that only echo v5 has.
func handlers() map[string]adaptertest.Handler {
	own := map[string]adaptertest.Handler{}
	for name, h := range map[string]echo.HandlerFunc{
		"Blob": func(c *echo.Context) error { return c.Blob(http.StatusOK, "application/pdf", []byte("%PDF")) },
		"XML":  func(c *echo.Context) error { return c.XML(http.StatusConflict, "paid") },
		"HTML": func(c *echo.Context) error { return c.HTML(http.StatusOK, "<p>paid</p>") },
		"Stream": func(c *echo.Context) error {
			return c.Stream(http.StatusOK, "text/x", bytes.NewBufferString("paid"))
		},
		"Redirect":                  func(c *echo.Context) error { return c.Redirect(http.StatusSeeOther, "/orders/1") },
		"File":                      func(c *echo.Context) error { return c.FileFS("echo5once.go", os.DirFS(".")) },
		"an error":                  func(*echo.Context) error { return adaptertest.ErrNoCover },
		"an HTTPError":              func(*echo.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "no cover") },
		"an HTTPError, sent before": func(c *echo.Context) error { testContext{c}.Error(echo.NewHTTPError(409, "no")); return nil },
		"Bind fails": func(c *echo.Context) error {
			var payment struct{ Amount int }
			c.Request().Header.Set("Content-Type", "text/x")
			return c.Bind(&payment)
		},
		"Before and After": func(c *echo.Context) error {
			testContext{c}.Before(func() { c.Response().Header().Set("X-Before", "1") })
			return c.String(http.StatusCreated, "paid")
		},
		"Early Hints below echo's writer": func(c *echo.Context) error {
			testContext{c}.response().ResponseWriter.WriteHeader(http.StatusEarlyHints)
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
	s.Protect(func(adaptertest.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "no") })
	s.Want(s.Pay("k", "1"), http.StatusOK, "*", middleware.Executed)
	s.Want(s.Pay("k", "1"), http.StatusOK, "", middleware.Replayed)
}

// The final status after a 103 is the client's. echo by itself drops it: its response takes the 103 for the final one.
//
// fault: the handler sends a 103 and then its status, with and without a compressor outside -> the client gets both
func TestEarlyHintsAndAStatus(t *testing.T) {
	pass := func(next echo.HandlerFunc) echo.HandlerFunc { return next }
	for name, test := range map[string]struct {
		h      adaptertest.Handler // after the 103
		status int
		body   string
	}{
		"a status": {func(c adaptertest.Context) error { return c.NoContent(http.StatusCreated) }, 201, ""},
		"a body":   {func(c adaptertest.Context) error { return c.String(http.StatusCreated, "paid") }, 201, "paid"},
		"JSON":     {func(c adaptertest.Context) error { return c.JSON(http.StatusCreated, "paid") }, 201, "\"paid\"\n"},
		"an error": {func(adaptertest.Context) error { return echo.NewHTTPError(402, "no cover") }, 402, "{\"message\":\"no cover\"}\n"},
	} {
		h := func(c adaptertest.Context) error {
			for range 2 {
				if err := c.EarlyHints(); err != nil {
					return err
				}
			}
			return test.h(c)
		}
		for where, outer := range map[string]echo.MiddlewareFunc{"": pass, ", below Gzip": echomiddleware.Gzip()} {
			t.Run(name+where, func(t *testing.T) {
				s := framework.NewSite(t)
				s.Router.Use(outer)
				s.Protect(h)
				first := s.Pay("k", "{}")
				s.Want(first, test.status, test.body, middleware.Executed)
				again := s.Pay("k", "{}")
				s.Want(again, test.status, test.body, middleware.Replayed)
				if !slices.Equal(first.Early, []int{103, 103}) || len(again.Early) > 0 {
					t.Errorf("before the first response there is %v, before the replay %v", first.Early, again.Early)
				}
				s.WantRuns(1)
			})
			t.Run(name+where+", in shadow", func(t *testing.T) {
				s := framework.NewSite(t, middleware.WithShadow())
				s.Router.Use(outer)
				s.Protect(h)
				s.Want(s.Pay("k", "{}"), test.status, test.body, middleware.Executed)
				if e := s.Want(s.Pay("k", "{}"), test.status, test.body, middleware.Replayed); e.Differs {
					t.Error("the second run is said to differ")
				}
			})
		}
	}
}
