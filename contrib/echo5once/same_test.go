package echo5once_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/middleware"
)

var errNoCover = errors.New("no cover")

// handlers answer in all the ways that echo has.
func handlers(t *testing.T) map[string]echo.HandlerFunc {
	file := filepath.Join(t.TempDir(), "invoice.txt")
	if err := os.WriteFile(file, []byte("an invoice"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]echo.HandlerFunc{
		"JSON":      func(c *echo.Context) error { return c.JSON(http.StatusCreated, map[string]any{"id": 1}) },
		"String":    func(c *echo.Context) error { return c.String(http.StatusAccepted, "paid") },
		"Blob":      func(c *echo.Context) error { return c.Blob(http.StatusOK, "application/pdf", []byte("%PDF")) },
		"XML":       func(c *echo.Context) error { return c.XML(http.StatusConflict, "paid") },
		"HTML":      func(c *echo.Context) error { return c.HTML(http.StatusOK, "<p>paid</p>") },
		"File":      func(c *echo.Context) error { return c.FileFS(filepath.Base(file), os.DirFS(filepath.Dir(file))) },
		"Stream":    func(c *echo.Context) error { return c.Stream(http.StatusOK, "text/x", bytes.NewBufferString("paid")) },
		"Redirect":  func(c *echo.Context) error { return c.Redirect(http.StatusSeeOther, "/orders/1") },
		"NoContent": func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) },
		"nothing":   func(*echo.Context) error { return nil },
		"twice": func(c *echo.Context) error {
			_ = c.String(http.StatusCreated, "paid")
			return c.NoContent(http.StatusTeapot)
		},
		"a header": func(c *echo.Context) error {
			c.Response().Header().Set("Location", "/orders/1")
			return c.NoContent(http.StatusCreated)
		},
		"an HTTPError":              func(*echo.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "no cover") },
		"an HTTPError, sent before": func(c *echo.Context) error { c.Echo().HTTPErrorHandler(c, echo.NewHTTPError(409, "no")); return nil },
		"an answer, and an error": func(c *echo.Context) error {
			_ = c.String(http.StatusCreated, "paid")
			return errNoCover
		},
		"Bind fails": func(c *echo.Context) error {
			var payment struct{ Amount int }
			c.Request().Header.Set("Content-Type", "text/x")
			return c.Bind(&payment)
		},
		"Before and After": func(c *echo.Context) error {
			response, err := echo.UnwrapResponse(c.Response())
			if err != nil {
				return err
			}
			response.Before(func() { response.Header().Set("X-Before", "1") })
			return c.String(http.StatusCreated, "paid")
		},
		"Flush": func(c *echo.Context) error {
			_ = c.String(http.StatusCreated, "a")
			_ = http.NewResponseController(c.Response()).Flush()
			_, err := c.Response().Write([]byte("b"))
			return err
		},
		"Early Hints": earlyHints,
		"Early Hints below echo's writer": func(c *echo.Context) error {
			response, err := echo.UnwrapResponse(c.Response())
			if err != nil {
				return err
			}
			response.ResponseWriter.WriteHeader(http.StatusEarlyHints)
			return c.NoContent(http.StatusCreated)
		},
		"a write deadline": func(c *echo.Context) error {
			if err := http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				return err
			}
			return c.NoContent(http.StatusCreated)
		},
	}
}

// earlyHints sends a 103.
func earlyHints(c *echo.Context) error {
	c.Response().Header().Set("Link", "</style.css>; rel=preload")
	return c.NoContent(http.StatusEarlyHints)
}

// The final status after a 103 is the client's. echo by itself drops it: its response takes the 103 for the final one.
//
// fault: the handler sends a 103 and then its status, with and without a compressor outside -> the client gets both
func TestEarlyHintsAndAStatus(t *testing.T) {
	pass := func(next echo.HandlerFunc) echo.HandlerFunc { return next }
	for name, test := range map[string]struct {
		h      echo.HandlerFunc // after the 103
		status int
		body   string
	}{
		"a status": {func(c *echo.Context) error { return c.NoContent(http.StatusCreated) }, 201, ""},
		"a body":   {func(c *echo.Context) error { return c.String(http.StatusCreated, "paid") }, 201, "paid"},
		"JSON":     {func(c *echo.Context) error { return c.JSON(http.StatusCreated, "paid") }, 201, "\"paid\"\n"},
		"an error": {func(*echo.Context) error { return echo.NewHTTPError(402, "no cover") }, 402, "{\"message\":\"no cover\"}\n"},
	} {
		h := func(c *echo.Context) error {
			for range 2 {
				if err := earlyHints(c); err != nil {
					return err
				}
			}
			return test.h(c)
		}
		for where, outer := range map[string]echo.MiddlewareFunc{"": pass, ", below Gzip": echomiddleware.Gzip()} {
			t.Run(name+where, func(t *testing.T) {
				s := newService(t)
				s.echo.Use(outer)
				s.echo.POST("/payments", s.counted(h), s.once)
				first := s.Post("/payments", "k", "{}")
				s.Want(first, test.status, test.body, middleware.Executed)
				again := s.Post("/payments", "k", "{}")
				s.Want(again, test.status, test.body, middleware.Replayed)
				if !slices.Equal(first.Early, []int{103, 103}) || len(again.Early) > 0 {
					t.Errorf("before the first response there is %v, before the replay %v", first.Early, again.Early)
				}
				s.WantRuns(1)
			})
			t.Run(name+where+", in shadow", func(t *testing.T) {
				s := newService(t, middleware.WithShadow())
				s.echo.Use(outer)
				s.echo.POST("/payments", h, s.once)
				s.Want(s.Post("/payments", "k", "{}"), test.status, test.body, middleware.Executed)
				if e := s.Want(s.Post("/payments", "k", "{}"), test.status, test.body, middleware.Replayed); e.Differs {
					t.Error("the second run is said to differ")
				}
			})
		}
	}
}

// What the client gets, and what a middleware outside sees, is the same without this package, with it, and on a replay.
func TestSameAsEcho(t *testing.T) {
	for name, h := range handlers(t) {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.echo.POST("/bare", h)
			s.echo.POST("/payments", s.counted(h), s.once)
			bare, bareSeen := s.Post("/bare", "k", "{}"), <-s.seen

			first, firstSeen := s.Post("/payments", "k", "{}"), <-s.seen
			kept := middleware.StoreDefault(bare.Status)
			outcome, outcomeAgain := middleware.Executed, middleware.Replayed
			if !kept {
				outcome, outcomeAgain = middleware.Freed, middleware.Freed
			}
			s.WantEvent(outcome)
			again, againSeen := s.Post("/payments", "k", "{}"), <-s.seen
			s.WantEvent(outcomeAgain)

			if again.Replayed() != kept || first.Replayed() {
				t.Errorf("replayed: %v, then %v", first.Replayed(), again.Replayed())
			}
			adaptertest.WantSame(t, "the first response", first, bare)
			if !slices.Equal(first.Early, bare.Early) || len(again.Early) > 0 {
				t.Errorf("before the first response there is %v, before the replay %v; without this package %v", first.Early, again.Early, bare.Early)
			}
			adaptertest.WantSame(t, "the replay", again, bare)
			if !reflect.DeepEqual(firstSeen.err, bareSeen.err) {
				t.Errorf("a middleware outside gets the error %v, and %v without this package", firstSeen.err, bareSeen.err)
			}
			// An error is rendered inside, so that the outer middlewares already see its response.
			want := seen{bare.Status, int64(len(bare.Body)), true, nil}
			firstSeen.err, againSeen.err = nil, nil
			if firstSeen != want || againSeen != want {
				t.Errorf("a middleware outside sees %+v, then %+v, want %+v", firstSeen, againSeen, want)
			}
		})
	}
}

// In shadow, too, and then for every request.
func TestShadowSameAsEcho(t *testing.T) {
	for name, h := range handlers(t) {
		t.Run(name, func(t *testing.T) {
			s := newService(t, middleware.WithShadow())
			s.echo.POST("/bare", h)
			s.echo.POST("/payments", s.counted(h), s.once)
			bare := s.Post("/bare", "k", "{}")
			outcomes := []middleware.Outcome{middleware.Executed, middleware.Replayed}
			if !middleware.StoreDefault(bare.Status) {
				outcomes = []middleware.Outcome{middleware.Freed, middleware.Freed}
			}
			for _, outcome := range outcomes {
				got := s.Post("/payments", "k", "{}")
				adaptertest.WantSame(t, string(outcome), got, bare)
				if e := s.WantEvent(outcome); e.Status != bare.Status || e.Differs || !slices.Equal(got.Early, bare.Early) {
					t.Errorf("before the response there is %v, without this package %v; the Event has the status %d and differs %t",
						got.Early, bare.Early, e.Status, e.Differs)
				}
			}
			s.WantRuns(2)
		})
	}
}
