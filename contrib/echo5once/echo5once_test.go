package echo5once_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"github.com/labstack/echo/v5"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/contrib/echo5once"
	test "github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAdapter(t *testing.T) {
	framework.Rows = framework.EchoRows()
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

// The final status after a 103 is the client's. echo by itself drops it: its response takes the 103 for the final one.
//
// fault: the handler sends a 103 and then its status, with and without a compressor outside -> the client gets both
func TestEarlyHintsAndAStatus(t *testing.T) {
	pass := func(next test.Handler) test.Handler { return next }
	for name, h := range map[string]test.Handler{
		"a status": func(c test.Context) error { return c.NoContent(http.StatusCreated) },
		"a body":   test.Pay,
		"JSON":     func(c test.Context) error { return c.JSON(http.StatusCreated, "paid") },
		"an error": func(c test.Context) error { return c.Fail(http.StatusCreated) },
	} {
		for _, outer := range []test.Middleware{pass, framework.Gzip} {
			for _, shadow := range []middleware.Option{middleware.WithRequired(), middleware.WithShadow()} {
				s := framework.NewSite(t, shadow)
				s.Router.Use(outer)
				s.Protect(func(c test.Context) error {
					_, _ = test.EarlyHints(c), test.EarlyHints(c)
					return h(c)
				})
				first, again := s.Pay("{}"), s.Pay("{}")
				if first.Status != http.StatusCreated || !slices.Equal(first.Early, []int{103, 103}) {
					t.Errorf("%s: %+v", name, first)
				}
				if again.Status != first.Status || again.Body != first.Body {
					t.Errorf("%s: then %+v", name, again)
				}
			}
		}
	}
}

// Elsewhere there is no user.
func TestUser(t *testing.T) {
	user := echo5once.User(func(*echo.Context) string { return "ann" })
	if _, err := user(httptest.NewRequest(http.MethodPost, "/", nil)); !errors.Is(err, keyfunc.ErrNoUser) {
		t.Errorf("error %v, want ErrNoUser", err)
	}
	defer func() {
		if got := recover(); got != "echo5once.User: fn is nil" {
			t.Errorf("panic %v", got)
		}
	}()
	echo5once.User(nil)
}
