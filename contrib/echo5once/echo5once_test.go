package echo5once_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	"github.com/onceguard/onceguard/contrib/echo5once"
	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

const lease = 10 * time.Second // the default

func pay(c *echo.Context) error { return c.String(http.StatusCreated, "paid") }

func fail(*echo.Context) error { return errNoCover }

// In echo's own WrapMiddleware, what the HTTPErrorHandler writes comes too late.
func TestWrappedByHand(t *testing.T) {
	s := newService(t)
	once := echo.WrapMiddleware(middleware.Idempotency(s.OtherLocker(), keyfunc.Standard(keyfunc.Anonymous()), s.Observer()))
	s.echo.POST("/payments", func(*echo.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "no") }, once)
	s.Want(s.Post("/payments", "k", "1"), http.StatusOK, "*", middleware.Executed)
	s.Want(s.Post("/payments", "k", "1"), http.StatusOK, "", middleware.Replayed)
}

func TestConflicts(t *testing.T) {
	s := newService(t, middleware.WithRequired())
	entered, leave := make(chan struct{}), make(chan struct{})
	s.echo.POST("/payments", s.counted(func(c *echo.Context) error {
		close(entered)
		<-leave
		return pay(c)
	}), s.once)
	first := make(chan adaptertest.Answer)
	go func() { first <- s.Post("/payments", "k", "1") }()
	<-entered
	s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, "*", middleware.InFlight)
	s.Want(s.Post("/payments", "k", "2"), http.StatusUnprocessableEntity, "*", middleware.Reused)
	close(leave)
	s.Want(<-first, http.StatusCreated, "paid", middleware.Executed)
	a := s.Post("/payments", "k", "2")
	s.Want(a, http.StatusUnprocessableEntity, "*", middleware.Reused)
	if !strings.Contains(a.Body, "key-reused") {
		t.Errorf("body %q, want the problem", a.Body)
	}
	s.Want(s.Post("/payments", "", "1"), http.StatusBadRequest, "*", middleware.MissingKey)
	s.WantRuns(1)
}

// An error is stored as the central HTTPErrorHandler writes it, which is not called for a replay.
func TestReturnedError(t *testing.T) {
	s := newService(t)
	rendered := 0
	s.echo.HTTPErrorHandler = func(c *echo.Context, err error) {
		if response, _ := echo.UnwrapResponse(c.Response()); !response.Committed {
			rendered++
			_ = c.String(http.StatusPaymentRequired, err.Error())
		}
	}
	s.echo.POST("/payments", s.counted(fail), s.once)
	s.Want(s.Post("/payments", "k", "1"), http.StatusPaymentRequired, "no cover", middleware.Executed)
	if got := <-s.seen; !errors.Is(got.err, errNoCover) || got.status != http.StatusPaymentRequired || !got.committed {
		t.Errorf("a middleware outside sees %+v, want the error and its response", got)
	}
	s.Want(s.Post("/payments", "k", "1"), http.StatusPaymentRequired, "no cover", middleware.Replayed)
	if got := <-s.seen; got.err != nil {
		t.Errorf("a replay returns the error %v", got.err)
	}
	if s.WantRuns(1); rendered != 1 {
		t.Errorf("rendered %d times, want once", rendered)
	}
}

// echo calls the HTTPErrorHandler again after the middlewares have returned. One that does not check Committed does not
// add a second response to the first.
func TestErrorHandlerThatDoesNotCheckCommitted(t *testing.T) {
	const body = "this is not to be doubled"
	answerAndFail := func(c *echo.Context) error {
		_ = c.String(http.StatusPaymentRequired, body)
		return errNoCover
	}
	callErrorHandler := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			if err != nil {
				c.Echo().HTTPErrorHandler(c, err)
			}
			return err
		}
	}
	pass := func(next echo.HandlerFunc) echo.HandlerFunc { return next }
	for name, test := range map[string]struct {
		h     echo.HandlerFunc
		outer echo.MiddlewareFunc
		opt   middleware.Option
	}{
		"an error":                {fail, pass, middleware.WithRequired()},
		"an answer, and an error": {answerAndFail, pass, middleware.WithRequired()},
		"called by a logger":      {fail, callErrorHandler, middleware.WithRequired()},
		"compressed":              {fail, echomiddleware.Gzip(), middleware.WithRequired()},
		"in shadow":               {fail, pass, middleware.WithShadow()},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, test.opt)
			s.echo.HTTPErrorHandler = func(c *echo.Context, _ error) { _ = c.JSON(http.StatusPaymentRequired, body) }
			want := "\"" + body + "\"\n"
			if name == "an answer, and an error" {
				want = body
			}
			s.echo.Use(test.outer)
			s.echo.POST("/payments", s.counted(test.h), s.once)
			for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
				s.Want(s.Post("/payments", "k", "1"), http.StatusPaymentRequired, want, outcome)
				got := <-s.seen
				if replay := outcome == middleware.Replayed && name != "in shadow"; (got.err == nil) != replay {
					t.Errorf("a middleware outside gets the error %v", got.err)
				}
				if got.status != http.StatusPaymentRequired || !got.committed {
					t.Errorf("a middleware outside sees %+v", got)
				}
			}
		})
	}
}

// What is left to outer middlewares cannot be stored, and is no 200.
func TestErrorRenderedOutside(t *testing.T) {
	keep := func(c *echo.Context) error {
		middleware.FromContext(c.Request().Context()).Keep()
		return errNoCover
	}
	discard := func(c *echo.Context) error {
		_ = middleware.FromContext(c.Request().Context()).Discard()
		return errNoCover
	}
	atMostOnce := []middleware.Option{middleware.WithAtMostOnce()}
	for name, test := range map[string]struct {
		h       echo.HandlerFunc
		opts    []middleware.Option
		outcome middleware.Outcome
		again   middleware.Outcome // of a retry once the lease is over
		atOnce  int                // status of a retry
		later   int                // of a retry once the lease is over
		runs    int64
	}{
		"an error":                          {fail, nil, middleware.Unknown, middleware.Unknown, 409, 402, 2},
		"the effect is there":               {keep, nil, middleware.NotStored, middleware.NotReplayable, 409, 409, 1},
		"nothing has happened":              {discard, nil, middleware.Freed, middleware.Freed, 402, 402, 3},
		"at most once":                      {fail, atMostOnce, middleware.Unknown, middleware.OutcomeUnknown, 409, 409, 1},
		"at most once, the effect is there": {keep, atMostOnce, middleware.NotStored, middleware.NotReplayable, 409, 409, 1},
		"in shadow":                         {fail, []middleware.Option{middleware.WithShadow()}, middleware.Unknown, middleware.Unknown, 402, 402, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, test.opts...)
			s.echo.HTTPErrorHandler = func(*echo.Context, error) {}
			s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					if err := next(c); err != nil {
						return c.String(http.StatusPaymentRequired, err.Error())
					}
					return nil
				}
			})
			s.echo.POST("/payments", s.counted(test.h), s.once)
			e := s.Want(s.Post("/payments", "k", "1"), http.StatusPaymentRequired, "no cover", test.outcome)
			if test.outcome != middleware.Freed {
				adaptertest.WantLeftOpen(t, e)
			}
			if again := s.Post("/payments", "k", "1"); again.Status != test.atOnce {
				t.Errorf("status %d of a retry at once, want %d", again.Status, test.atOnce)
			}
			<-s.Events
			s.Redis.FastForward(lease)
			s.Want(s.Post("/payments", "k", "1"), test.later, "*", test.again)
			s.WantRuns(test.runs)
		})
	}
}

// A panic goes through this middleware to the Recover outside, and leaves the key to run out.
func TestPanicWithRecoverOutside(t *testing.T) {
	s := newService(t)
	s.echo.Use(echomiddleware.Recover())
	panics := true
	s.echo.POST("/payments", s.counted(func(c *echo.Context) error {
		if panics {
			c.Response().Header().Set("Location", "/orders/1")
			_ = pay(c)
			panic("no")
		}
		return pay(c)
	}), s.once)
	a := s.Post("/payments", "k", "1")
	s.Want(a, http.StatusInternalServerError, "{\"message\":\"Internal Server Error\"}\n", middleware.Panicked)
	if a.Header.Get("Location") != "" {
		t.Error("the header of the response that was given up went out")
	}
	s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, "*", middleware.InFlight)
	panics = false
	s.Redis.FastForward(lease)
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.Executed)
	s.WantRuns(2)
}

// A Recover inside makes a response of the panic, which frees the key: that is why it must be outside.
func TestPanicWithRecoverInside(t *testing.T) {
	s := newService(t)
	s.echo.POST("/payments", s.counted(func(*echo.Context) error { panic("no") }), s.once, echomiddleware.Recover())
	for range 2 {
		s.Want(s.Post("/payments", "k", "1"), http.StatusInternalServerError, "*", middleware.Freed)
	}
	s.WantRuns(2)
}

func TestNoRoute(t *testing.T) {
	s := newService(t)
	s.echo.Use(s.once)
	s.echo.GET("/payments", pay)
	for range 2 {
		s.Want(s.Post("/nowhere", "k", "1"), http.StatusNotFound, "{\"message\":\"Not Found\"}\n", middleware.Freed)
		s.Want(s.Post("/payments", "k", "1"), http.StatusMethodNotAllowed, "{\"message\":\"Method Not Allowed\"}\n", middleware.Freed)
	}
}

// A request that is not protected passes untouched, with its error.
func TestUnprotected(t *testing.T) {
	s := newService(t)
	var outer *http.Request
	var response http.ResponseWriter
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			outer, response = c.Request(), c.Response()
			return next(c)
		}
	}, s.once)
	h := func(c *echo.Context) error {
		if c.Request() != outer || c.Response() != response {
			t.Error("the handler has another request or response")
		}
		body, err := io.ReadAll(c.Request().Body)
		return echo.NewHTTPError(http.StatusTeapot, string(body)).Wrap(err)
	}
	s.echo.PUT("/payments", h)
	s.echo.POST("/payments", h)
	if a := s.Send(http.MethodPut, "/payments", "k", "1"); a.Status != http.StatusTeapot || len(s.Events) > 0 {
		t.Errorf("PUT: %d", a.Status)
	}
	s.Want(s.Post("/payments", "", "1"), http.StatusTeapot, "{\"message\":\"1\"}\n", middleware.Unprotected)
}

func TestFailOpen(t *testing.T) {
	s := newService(t, middleware.WithFailOpen())
	s.echo.POST("/payments", func(c *echo.Context) error {
		body, _ := io.ReadAll(c.Request().Body)
		return c.String(http.StatusOK, string(body))
	}, s.once)
	s.Away.Store(true)
	s.Want(s.Post("/payments", "k", "1"), http.StatusOK, "1", middleware.Unprotected)
}

func TestMountedTwice(t *testing.T) {
	s := newService(t)
	s.echo.Use(s.once)
	s.echo.POST("/payments", s.counted(pay), s.once)
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.Executed)
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.Replayed)
	s.WantRuns(1)
}

func TestContext(t *testing.T) {
	s := newService(t)
	type ctxKey struct{}
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", "ann")
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), ctxKey{}, "outer")))
			r, response := c.Request(), c.Response()
			own, _ := echo.UnwrapResponse(response)
			own.Before(func() { response.Header().Set("X-Before", "outer") })
			err := next(c)
			if c.Request() != r || c.Response() != response || r.Context().Err() != nil || (c.Get("set inside") != "yes") != (response.Header().Get("Idempotent-Replayed") == "true") {
				t.Error("c is not as it was")
			}
			return err
		}
	})
	group := s.echo.Group("/users/:user", s.once)
	group.POST("/payments", func(c *echo.Context) error {
		c.Set("set inside", "yes")
		if middleware.FromContext(c.Request().Context()) == nil {
			t.Error("the handler has no run")
		}
		if c.Request().Pattern != "/users/:user/payments" || c.Param("user") != "42" || c.Get("user") != "ann" {
			t.Errorf("pattern %q, param %q, value %v", c.Request().Pattern, c.Param("user"), c.Get("user"))
		}
		if c.Request().Context().Value(ctxKey{}) != "outer" {
			t.Error("the values of the outer context are lost")
		}
		return pay(c)
	})
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		a := s.Post("/users/42/payments", "k", "1")
		e := s.Want(a, http.StatusCreated, "paid", outcome)
		if e.Pattern != "/users/:user/payments" || a.Header.Get("X-Before") != "outer" {
			t.Errorf("%s: the Event has the pattern %q, the outer Before set %q", outcome, e.Pattern, a.Header.Get("X-Before"))
		}
	}
}

func TestDiscard(t *testing.T) {
	s := newService(t)
	s.echo.POST("/payments", s.counted(func(c *echo.Context) error {
		_ = middleware.FromContext(c.Request().Context()).Discard()
		return echo.NewHTTPError(http.StatusConflict, "again")
	}), s.once)
	for range 2 {
		s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, "{\"message\":\"again\"}\n", middleware.Freed)
	}
	s.WantRuns(2)
}

func TestCookies(t *testing.T) {
	s := newService(t, middleware.WithCookies())
	s.echo.POST("/payments", func(c *echo.Context) error {
		c.SetCookie(&http.Cookie{Name: "order", Value: "1"})
		return pay(c)
	}, s.once)
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		a := s.Post("/payments", "k", "1")
		if s.Want(a, http.StatusCreated, "paid", outcome); a.Header.Get("Set-Cookie") != "order=1" {
			t.Errorf("Set-Cookie %q", a.Header.Get("Set-Cookie"))
		}
	}
}

// hijack answers on the connection itself.
func hijack(c *echo.Context) error {
	conn, _, err := http.NewResponseController(c.Response()).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 4\r\n\r\npaid")
	return err
}

// A connection that was hijacked has had its response: a retry does not run, not even after an error.
func TestHijack(t *testing.T) {
	s := newService(t)
	s.echo.POST("/payments", s.counted(hijack), s.once)
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.NotStored)
	s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, "*", middleware.NotReplayable)
	s.WantRuns(1)
}

// The user comes from echo's own context.
func TestUser(t *testing.T) {
	s := newService(t)
	user := func(c *echo.Context) string { return c.Request().Header.Get("X-User") }
	once := echo5once.Idempotency(s.OtherLocker(), keyfunc.Standard(echo5once.User(user)))
	s.echo.POST("/payments", s.counted(pay), once)
	for _, test := range []struct {
		user   string
		status int
		runs   int64
	}{{"ann", 201, 1}, {"bob", 201, 2}, {"ann", 201, 2}, {"", 401, 2}} {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("X-User", test.user)
		w := httptest.NewRecorder()
		if s.echo.ServeHTTP(w, r); w.Code != test.status {
			t.Errorf("user %q: status %d, want %d", test.user, w.Code, test.status)
		}
		s.WantRuns(test.runs)
	}
	if _, err := echo5once.User(user)(httptest.NewRequest(http.MethodPost, "/", nil)); !errors.Is(err, keyfunc.ErrNoUser) {
		t.Errorf("elsewhere: error %v, want ErrNoUser", err)
	}
}

func TestPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"echo5once.User: fn is nil":                 func() { echo5once.User(nil) },
		"middleware.Idempotency: the locker is nil": func() { echo5once.Idempotency(nil, keyfunc.Body()) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := recover(); got != name {
					t.Errorf("panic %v, want %q", got, name)
				}
			}()
			f()
		})
	}
}

// fault: the deadline of echo's ContextTimeout outside passes, and the handler returns its error -> 503 as from echo alone,
// and no retry runs in the time of the lease, because the effect may be there
func TestContextTimeoutOutside(t *testing.T) {
	wait := func(c *echo.Context) error {
		<-c.Request().Context().Done()
		return fmt.Errorf("the provider: %w", c.Request().Context().Err())
	}
	answer := func(c *echo.Context) error {
		<-c.Request().Context().Done()
		return c.String(http.StatusAccepted, "later")
	}
	discard := func(c *echo.Context) error {
		_ = middleware.FromContext(c.Request().Context()).Discard()
		return wait(c)
	}
	other := func(c *echo.Context) error {
		<-c.Request().Context().Done()
		return errNoCover
	}
	atMostOnce, shadow := []middleware.Option{middleware.WithAtMostOnce()}, []middleware.Option{middleware.WithShadow()}
	for name, test := range map[string]struct {
		h              echo.HandlerFunc
		opts           []middleware.Option
		outcome, again middleware.Outcome
	}{
		"an error":               {wait, nil, middleware.Unknown, middleware.InFlight},
		"at most once":           {wait, atMostOnce, middleware.Unknown, middleware.InFlight},
		"in shadow":              {wait, shadow, middleware.Unknown, middleware.InFlight},
		"nothing has happened":   {discard, nil, middleware.Freed, middleware.Freed},
		"another error":          {other, nil, middleware.Freed, middleware.Freed},
		"an answer all the same": {answer, nil, middleware.Executed, middleware.Replayed},
	} {
		t.Run(name, func(t *testing.T) {
			// On a busy machine the deadline may pass before the handler runs.
			timeout := 50 * time.Millisecond
			for !timesOut(t, timeout, test.h, test.opts, test.outcome, test.again) && timeout < time.Minute {
				timeout *= 2
			}
		})
	}
}

// timesOut sends a request to h below a ContextTimeout, and a retry. It reports whether each of them has reached Redis in
// time.
func timesOut(t *testing.T, timeout time.Duration, h echo.HandlerFunc, opts []middleware.Option, outcome, again middleware.Outcome) bool {
	t.Helper()
	s := newService(t, opts...)
	s.echo.Use(echomiddleware.ContextTimeout(timeout))
	s.echo.POST("/bare", h)
	s.echo.POST("/payments", s.counted(h), s.once)
	bare, first := s.Post("/bare", "k", "1"), s.Post("/payments", "k", "1")
	e := <-s.Events
	s.Post("/payments", "k", "1")
	second := <-s.Events
	if e.Outcome == middleware.StoreUnavailable || second.Outcome == middleware.StoreUnavailable {
		return false
	}
	if first.Status != bare.Status || first.Body != bare.Body {
		t.Errorf("got %d %q, without this package %d %q", first.Status, first.Body, bare.Status, bare.Body)
	}
	if e.Outcome != outcome || second.Outcome != again {
		t.Errorf("outcomes %s (%v) and %s, want %s and %s", e.Outcome, e.Err, second.Outcome, outcome, again)
	}
	if outcome == middleware.Unknown && (e.Err == nil || !strings.Contains(e.Err.Error(), "deadline")) {
		t.Errorf("the Event has the error %v, want one of the deadline", e.Err)
	}
	return true
}

// A body that is longer than echo's BodyLimit outside allows is answered as echo answers it, whether its length is known
// in advance or not, and is not to be sent again.
//
// fault: the body is longer than the BodyLimit, and has no Content-Length -> 413, not 400
func TestBodyLimitOutside(t *testing.T) {
	for name, test := range map[string]struct {
		opts    []middleware.Option
		outcome middleware.Outcome
	}{
		"protected":   {nil, middleware.TooLarge},
		"in shadow":   {[]middleware.Option{middleware.WithShadow()}, middleware.TooLarge},
		"without key": {nil, middleware.Unprotected},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, test.opts...)
			s.echo.Use(echomiddleware.BodyLimit(4))
			h := func(c *echo.Context) error {
				_, err := io.ReadAll(c.Request().Body)
				return err
			}
			s.echo.POST("/bare", h)
			s.echo.POST("/payments", s.counted(h), s.once)
			send := func(path string) adaptertest.Answer {
				key := "k"
				if name == "without key" {
					key = ""
				}
				return s.SendBody(http.MethodPost, path, key, io.MultiReader(strings.NewReader("too long")))
			}
			bare := send("/bare")
			a := send("/payments")
			if s.WantEvent(test.outcome); bare.Status != http.StatusRequestEntityTooLarge || a.Status != bare.Status {
				t.Errorf("got %d %q; without this package %d", a.Status, a.Body, bare.Status)
			}
			if problem := strings.Contains(a.Body, "body-too-large"); problem != (name == "protected") || problem != (a.Header.Get("X-Should-Retry") == "false") {
				t.Errorf("got %q, X-Should-Retry %q", a.Body, a.Header.Get("X-Should-Retry"))
			}
			if name != "protected" {
				adaptertest.WantSame(t, "the response", a, bare)
			}
			s.Want(s.Post("/payments", "k2", "ok"), http.StatusOK, "", middleware.Executed)
		})
	}
}

// A handler that returns without an answer after its deadline has not answered 200.
func TestDeadline(t *testing.T) {
	s := newService(t, middleware.WithMaxDuration(time.Millisecond))
	s.echo.POST("/payments", func(c *echo.Context) error {
		<-c.Request().Context().Done()
		return nil
	}, s.once)
	s.Want(s.Post("/payments", "k", "1"), http.StatusGatewayTimeout, "", middleware.Unknown)
}
