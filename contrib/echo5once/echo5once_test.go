package echo5once_test

import (
	"bytes"
	"net/http"
	"os"
	"testing"

	"github.com/labstack/echo/v5"
	"go.uber.org/goleak"

	test "github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAdapter(t *testing.T) {
	framework.Rows = framework.EchoRows()
	// The final status after a 103 is the client's. echo by itself drops it: its response takes the 103 for the final one.
	//
	// fault: the handler sends a 103 and then its status, with and without a compressor outside -> the client gets both
	twice := func(c test.Context) error {
		_, _ = test.EarlyHints(c), test.EarlyHints(c)
		return c.JSON(http.StatusCreated, "paid")
	}
	stored := test.Stored(http.StatusCreated, "\"paid\"\n")
	shadow := middleware.WithShadow()
	framework.Rows["103"] = test.Row{Handler: twice, Want: stored}
	framework.Rows["103 below Gzip"] = test.Row{Handler: twice, Around: []any{framework.Gzip}, Want: stored}
	framework.Rows["103 in shadow"] = test.Row{Handler: twice, Around: []any{framework.Gzip, shadow}, Want: stored}
	framework.Tests(t)
}

// ways are those to answer that only echo v5 has.
func ways() map[string]test.Handler {
	own := map[string]test.Handler{}
	for name, h := range map[string]echo.HandlerFunc{
		"Blob": func(c *echo.Context) error {
			return c.Blob(http.StatusOK, "application/pdf", []byte("%PDF"))
		},
		"Stream": func(c *echo.Context) error {
			return c.Stream(http.StatusOK, "text/x", bytes.NewBufferString("paid"))
		},
		"Redirect": func(c *echo.Context) error { return c.Redirect(http.StatusSeeOther, "/orders/1") },
		"File":     func(c *echo.Context) error { return c.FileFS("echo5once.go", os.DirFS(".")) },
		"an error": func(*echo.Context) error { return test.ErrNoCover },
		"an error sent before": func(c *echo.Context) error {
			c.Echo().HTTPErrorHandler(c, echo.NewHTTPError(http.StatusConflict, "no"))
			return nil
		},
		"Early Hints below echo's writer": func(c *echo.Context) error {
			response, _ := echo.UnwrapResponse(c.Response())
			response.ResponseWriter.WriteHeader(http.StatusEarlyHints)
			return c.NoContent(http.StatusCreated)
		},
	} {
		own[name] = generic(h)
	}
	return own
}
