package adaptertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

const lease = 10 * time.Second // the default

// Tests runs the tests that all packages have in common.
func (f Framework[M]) Tests(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"same": f.same, "same in shadow": f.sameInShadow,
		"conflicts": f.conflicts, "shadow": f.shadow, "shadow, hijacked": f.shadowHijack, "hijacked": f.hijacked,
		"panic, Recover outside": f.recoverOutside, "panic, Recover inside": f.recoverInside, "panic, no Recover": f.noRecover,
		"error rendered inside": f.renderedInside, "error rendered outside": f.renderedOutside, "rolled back": f.rolledBack,
		"no route": f.noRoute, "unprotected": f.unprotected, "without Redis": f.withoutRedis,
		"mounted twice": f.mountedTwice, "context": f.context, "discard": f.discard, "cookies": f.cookies, "deadline": f.deadline,
		"user": f.user, "panics": f.panics,
	} {
		t.Run(name, test)
	}
}

func (f Framework[M]) conflicts(t *testing.T) {
	s := f.NewSite(t, middleware.WithRequired())
	entered, leave := make(chan struct{}), make(chan struct{})
	s.Protect(func(c Context) error {
		close(entered)
		<-leave
		return pay(c)
	})
	first := make(chan Answer)
	go func() { first <- s.Pay("k", "1") }()
	<-entered
	s.Want(s.Pay("k", "1"), http.StatusConflict, "*", middleware.InFlight)
	s.Want(s.Pay("k", "2"), http.StatusUnprocessableEntity, "*", middleware.Reused)
	close(leave)
	s.Want(<-first, http.StatusCreated, "paid", middleware.Executed)
	a := s.Pay("k", "2")
	s.Want(a, http.StatusUnprocessableEntity, "*", middleware.Reused)
	if !strings.Contains(a.Body, "key-reused") {
		t.Errorf("body %q, want the problem", a.Body)
	}
	s.Want(s.Pay("", "1"), http.StatusBadRequest, "*", middleware.MissingKey)
	s.WantRuns(1)
}

// Requests without a route get the framework's own answer, and take no key.
func (f Framework[M]) noRoute(t *testing.T) {
	s := f.NewSite(t)
	s.Router.Use(s.Once)
	s.Router.Add(http.MethodGet, "/payments", pay)
	for range 2 {
		s.Want(s.Post("/nowhere", "k", "1"), http.StatusNotFound, f.NotFound, middleware.Freed)
		s.Want(s.Pay("k", "1"), http.StatusMethodNotAllowed, f.NotAllowed, middleware.Freed)
	}
}

// A request that is not protected passes untouched, with its error.
func (f Framework[M]) unprotected(t *testing.T) {
	s := f.NewSite(t)
	var outer *http.Request
	var writer http.ResponseWriter
	s.Use(render)
	s.Use(func(next Handler) Handler {
		return func(c Context) error {
			outer, writer = c.Request(), c.Writer()
			return next(c)
		}
	})
	h := func(c Context) error {
		if c.Request() != outer || c.Writer() != writer || middleware.FromContext(c.Request().Context()) != nil {
			t.Error("the handler has another request or writer")
		}
		body, err := io.ReadAll(c.Request().Body)
		return errors.Join(errors.New(string(body)), err)
	}
	s.Router.Add(http.MethodPut, "/payments", h, s.Once)
	s.Protect(h)
	if a := s.Send(http.MethodPut, "/payments", "k", "1"); a.Status != 402 || a.Body != "1" || len(s.Events) > 0 {
		t.Errorf("PUT: %d %q", a.Status, a.Body)
	}
	s.Want(s.Pay("", "1"), 402, "1", middleware.Unprotected)
}

// Without Redis a request is refused or, with WithFailOpen, runs with its body.
func (f Framework[M]) withoutRedis(t *testing.T) {
	for name, test := range map[string]struct {
		opts    []middleware.Option
		status  int
		body    string
		outcome middleware.Outcome
		runs    int64
	}{
		"refused":   {nil, http.StatusServiceUnavailable, "*", middleware.StoreUnavailable, 0},
		"fail open": {[]middleware.Option{middleware.WithFailOpen()}, http.StatusOK, "1", middleware.Unprotected, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := f.NewSite(t, test.opts...)
			s.Protect(func(c Context) error {
				body, _ := io.ReadAll(c.Request().Body)
				return c.String(http.StatusOK, string(body))
			})
			s.Away.Store(true)
			s.Want(s.Pay("k", "1"), test.status, test.body, test.outcome)
			s.WantRuns(test.runs)
		})
	}
}

// Mounted twice, it takes effect once.
func (f Framework[M]) mountedTwice(t *testing.T) {
	s := f.NewSite(t)
	s.Router.Use(s.Once)
	s.Protect(pay)
	s.Want(s.Pay("k", "1"), http.StatusCreated, "paid", middleware.Executed)
	s.Want(s.Pay("k", "1"), http.StatusCreated, "paid", middleware.Replayed)
	s.WantRuns(1)
}

// Parameters and the route's pattern; what the context has from outer middlewares; and the context itself afterwards.
func (f Framework[M]) context(t *testing.T) {
	s := f.NewSite(t)
	type ctxKey struct{}
	s.Use(func(next Handler) Handler {
		return func(c Context) error {
			c.Set("user", "ann")
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), ctxKey{}, "outer")))
			r, w := c.Request(), c.Writer()
			err := next(c)
			ran, replayed := c.Get("set inside") == "yes", w.Header().Get("Idempotent-Replayed") == "true"
			if c.Request() != r || c.Writer() != w || r.Context().Err() != nil || ran == replayed {
				t.Error("the context is not as it was")
			}
			return err
		}
	})
	s.Router.Add(http.MethodPost, "/users/:user/payments", func(c Context) error {
		c.Set("set inside", "yes")
		if run := middleware.FromContext(c.Request().Context()); run == nil || run.Key() == "" {
			t.Error("the handler has no run")
		}
		if c.Request().Pattern != "/users/:user/payments" || c.Param("user") != "42" || c.Get("user") != "ann" {
			t.Errorf("pattern %q, param %q, value %v", c.Request().Pattern, c.Param("user"), c.Get("user"))
		}
		if c.Request().Context().Value(ctxKey{}) != "outer" {
			t.Error("the values of the outer context are lost")
		}
		return pay(c)
	}, s.Once)
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		if e := s.Want(s.Post("/users/42/payments", "k", "1"), http.StatusCreated, "paid", outcome); e.Pattern != "/users/:user/payments" {
			t.Errorf("%s: the Event has the pattern %q", outcome, e.Pattern)
		}
	}
}

// The handler says that nothing has happened: a retry runs.
func (f Framework[M]) discard(t *testing.T) {
	s := f.NewSite(t)
	s.Protect(func(c Context) error {
		_ = middleware.FromContext(c.Request().Context()).Discard()
		return c.String(http.StatusConflict, "again")
	})
	for range 2 {
		s.Want(s.Pay("k", "1"), http.StatusConflict, "again", middleware.Freed)
	}
	s.WantRuns(2)
}

func (f Framework[M]) cookies(t *testing.T) {
	s := f.NewSite(t, middleware.WithCookies())
	s.Protect(func(c Context) error {
		c.SetCookie(&http.Cookie{Name: "order", Value: "1"})
		return pay(c)
	})
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		a := s.Pay("k", "1")
		if s.Want(a, http.StatusCreated, "paid", outcome); a.Header.Get("Set-Cookie") != "order=1" {
			t.Errorf("Set-Cookie %q", a.Header.Get("Set-Cookie"))
		}
	}
}

// A handler that returns without an answer after its deadline has not answered 200.
func (f Framework[M]) deadline(t *testing.T) {
	s := f.NewSite(t, middleware.WithMaxDuration(time.Millisecond))
	s.Protect(func(c Context) error {
		<-c.Request().Context().Done()
		return nil
	})
	s.Want(s.Pay("k", "1"), http.StatusGatewayTimeout, "", middleware.Unknown)
}

// The user comes from the framework's own context. Elsewhere there is none.
func (f Framework[M]) user(t *testing.T) {
	s := f.NewSite(t)
	user := func(c Context) string { return c.Request().Header.Get("X-User") }
	s.Once = f.Idempotency(s.OtherLocker(), keyfunc.Standard(f.User(user)))
	s.Protect(pay)
	request := func(user string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("X-User", user)
		return r
	}
	for _, test := range []struct {
		user   string
		status int
		runs   int64
	}{{"ann", 201, 1}, {"bob", 201, 2}, {"ann", 201, 2}, {"", 401, 2}} {
		w := httptest.NewRecorder()
		if s.Router.ServeHTTP(w, request(test.user)); w.Code != test.status {
			t.Errorf("user %q: status %d, want %d", test.user, w.Code, test.status)
		}
		s.WantRuns(test.runs)
	}
	if _, err := f.User(user)(request("ann")); !errors.Is(err, keyfunc.ErrNoUser) {
		t.Errorf("elsewhere: error %v, want ErrNoUser", err)
	}
}
