package echoonce_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	test "github.com/onceguard/onceguard/contrib/internal/adaptertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAdapter(t *testing.T) {
	framework.Rows = framework.EchoRows()
	framework.Tests(t)
}

// ways are those to answer that only echo v4 has.
func ways() map[string]test.Handler {
	own := map[string]test.Handler{}
	for name, h := range map[string]echo.HandlerFunc{
		"Blob": func(c echo.Context) error {
			return c.Blob(http.StatusOK, "application/pdf", []byte("%PDF"))
		},
		"Stream": func(c echo.Context) error {
			return c.Stream(http.StatusOK, "text/x", bytes.NewBufferString("paid"))
		},
		"Redirect":             func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/orders/1") },
		"File":                 func(c echo.Context) error { return c.File("echoonce.go") },
		"an error":             func(echo.Context) error { return test.ErrNoCover },
		"an error sent before": func(c echo.Context) error { c.Error(echo.ErrConflict); return nil },
		"Flush by echo": func(c echo.Context) error {
			_ = c.String(http.StatusCreated, "a")
			c.Response().Flush()
			_, err := c.Response().Write([]byte("b"))
			return err
		},
		"Early Hints, and an error": func(c echo.Context) error {
			_ = test.EarlyHints(testContext{c})
			return test.ErrNoCover
		},
		"Early Hints below echo's writer": func(c echo.Context) error {
			c.Response().Writer.WriteHeader(http.StatusEarlyHints)
			return c.NoContent(http.StatusCreated)
		},
	} {
		own[name] = generic(h)
	}
	return own
}
