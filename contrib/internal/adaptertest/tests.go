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

// A panic goes through the middleware to the Recover outside, and leaves the key to run out.
func (f Framework[M]) recoverOutside(t *testing.T) {
	s := f.NewSite(t)
	s.Router.Use(f.Recover)
	panics := true
	s.Protect(func(c Context) error {
		if panics {
			c.Writer().Header().Set("Location", "/orders/1")
			_ = pay(c)
			panic("no")
		}
		return pay(c)
	})
	a := s.Pay("k", "1")
	s.Want(a, http.StatusInternalServerError, f.Recovered, middleware.Panicked)
	if a.Header.Get("Location") != "" {
		t.Error("the header of the response that was given up went out")
	}
	if seen := <-s.Seen; seen.Err == nil && seen.Status != http.StatusInternalServerError {
		t.Errorf("a middleware outside sees %+v, want a 500", seen)
	}
	s.Want(s.Pay("k", "1"), http.StatusConflict, "*", middleware.InFlight)
	panics = false
	s.Redis.FastForward(lease)
	s.Want(s.Pay("k", "1"), http.StatusCreated, "paid", middleware.Executed)
	s.WantRuns(2)
}

// A Recover inside makes a response of the panic, which frees the key: that is why it must be outside.
func (f Framework[M]) recoverInside(t *testing.T) {
	s := f.NewSite(t)
	s.Protect(func(Context) error { panic("no") }, f.Recover)
	for range 2 {
		s.Want(s.Pay("k", "1"), http.StatusInternalServerError, "*", middleware.Freed)
	}
	s.WantRuns(2)
}

// Without any Recover net/http gets the panic.
func (f Framework[M]) noRecover(t *testing.T) {
	s := f.NewSite(t)
	s.Protect(func(Context) error { panic("no") })
	if a := s.Pay("k", "1"); a.Err == nil {
		t.Errorf("status %d, want a broken connection", a.Status)
	}
	s.WantEvent(middleware.Panicked)
}

func fail(Context) error { return ErrNoCover }

// render is a middleware that answers errors.
func render(next Handler) Handler {
	return func(c Context) error {
		if err := next(c); err != nil {
			return c.String(http.StatusPaymentRequired, err.Error())
		}
		return nil
	}
}

func (f Framework[M]) renderedInside(t *testing.T) {
	s := f.NewSite(t)
	s.Protect(fail, s.Router.Middleware(render))
	s.Want(s.Pay("k", "1"), http.StatusPaymentRequired, "no cover", middleware.Executed)
	s.Want(s.Pay("k", "1"), http.StatusPaymentRequired, "no cover", middleware.Replayed)
	s.WantRuns(1)
}

// What is left to outer middlewares cannot be stored, and is no 200.
func (f Framework[M]) renderedOutside(t *testing.T) {
	keep := func(c Context) error {
		middleware.FromContext(c.Request().Context()).Keep()
		return ErrNoCover
	}
	discard := func(c Context) error {
		_ = middleware.FromContext(c.Request().Context()).Discard()
		return ErrNoCover
	}
	atMostOnce, shadow := []middleware.Option{middleware.WithAtMostOnce()}, []middleware.Option{middleware.WithShadow()}
	for name, test := range map[string]struct {
		h       Handler
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
		"at most once, nothing happened":    {discard, atMostOnce, middleware.Freed, middleware.Freed, 402, 402, 3},
		"in shadow":                         {fail, shadow, middleware.Unknown, middleware.Unknown, 402, 402, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := f.NewSite(t, test.opts...)
			s.Router.LeaveErrors()
			s.Use(render)
			s.Protect(test.h)
			e := s.Want(s.Pay("k", "1"), http.StatusPaymentRequired, "no cover", test.outcome)
			if test.outcome != middleware.Freed {
				WantLeftOpen(t, e)
			}
			if again := s.Pay("k", "1"); again.Status != test.atOnce {
				t.Errorf("status %d of a retry at once, want %d", again.Status, test.atOnce)
			}
			<-s.Events
			s.Redis.FastForward(lease)
			s.Want(s.Pay("k", "1"), test.later, "*", test.again)
			s.WantRuns(test.runs)
		})
	}
}

// What was written in a transaction that is rolled back is not the response.
func (f Framework[M]) rolledBack(t *testing.T) {
	commit := func(c Context, j *Journal) error {
		return j.InTx(c.Request().Context(), func() { _ = pay(c) })
	}
	for name, test := range map[string]struct {
		failures int
		h        func(Context, *Journal) error
		status   int
		body     string
	}{
		"committed":   {0, commit, 201, "paid"},
		"tried again": {1, func(c Context, j *Journal) error { _ = commit(c, j); return commit(c, j) }, 201, "paid"},
		"an error as JSON": {1, func(c Context, j *Journal) error {
			if err := commit(c, j); !errors.Is(err, ErrRolledBack) {
				t.Errorf("error %v", err)
			}
			return c.JSON(http.StatusPaymentRequired, "failed")
		}, 402, `"failed"` + f.LineEnd},
		"an error as a string": {1, func(c Context, j *Journal) error {
			_ = commit(c, j)
			return c.String(http.StatusPaymentRequired, "failed")
		}, 402, "failed"},
		"early hints, committed": {0, func(c Context, j *Journal) error { _ = c.EarlyHints(); return commit(c, j) }, f.LateStatus, "paid"},
		"early hints, an error": {1, func(c Context, j *Journal) error {
			_ = c.EarlyHints()
			_ = commit(c, j)
			return c.JSON(http.StatusPaymentRequired, "failed")
		}, 402, `"failed"` + f.LineEnd},
	} {
		t.Run(name, func(t *testing.T) {
			j := &Journal{Failures: test.failures}
			s := f.NewSite(t, middleware.WithJournal(j))
			s.Protect(func(c Context) error { return test.h(c, j) })
			s.Want(s.Pay("k", "1"), test.status, test.body, middleware.Executed)
			s.Want(s.Pay("k", "1"), test.status, test.body, middleware.Replayed)
		})
	}
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

// hijack answers on the connection itself.
func hijack(c Context) error {
	conn, err := c.Hijack()
	if err != nil {
		return c.String(http.StatusTeapot, err.Error())
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 4\r\n\r\npaid")
	return err
}

// A connection that was hijacked has had its response: a retry does not run.
func (f Framework[M]) hijacked(t *testing.T) {
	s := f.NewSite(t)
	s.Protect(hijack)
	s.Want(s.Pay("k", "1"), http.StatusCreated, "paid", middleware.NotStored)
	s.Want(s.Pay("k", "1"), http.StatusConflict, "*", middleware.NotReplayable)
	s.WantRuns(1)
}

// In shadow a handler can take the connection, as without the package.
func (f Framework[M]) shadowHijack(t *testing.T) {
	s := f.NewSite(t, middleware.WithShadow())
	s.Protect(hijack)
	s.Want(s.Pay("k", "1"), http.StatusCreated, "paid", middleware.NotStored)
}

// In shadow every request runs, and each run has a Key of its own: what is behind the handler must not take two runs for
// one because both have none.
func (f Framework[M]) shadow(t *testing.T) {
	s := f.NewSite(t, middleware.WithShadow())
	keys := make(chan string, 10)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.Use(func(next Handler) Handler {
		return func(c Context) error {
			r := c.Request()
			err := next(c)
			if c.Request() != r {
				t.Error("the request is not as it was")
			}
			return err
		}
	})
	s.Protect(func(c Context) error {
		keys <- middleware.FromContext(c.Request().Context()).Key()
		body, err := io.ReadAll(c.Request().Body)
		if string(body) == "first" {
			entered <- struct{}{}
			<-leave
		}
		if err != nil || len(body) == 0 {
			t.Errorf("the handler reads %q, %v", body, err)
		}
		return pay(c)
	})
	first := make(chan Answer, 1)
	go func() { first <- s.Pay("k", "first") }()
	<-entered
	s.Want(s.Pay("k", "other"), http.StatusCreated, "paid", middleware.Reused)
	close(leave)
	s.Want(<-first, http.StatusCreated, "paid", middleware.Executed)
	go func() { <-entered }()
	if e := s.Want(s.Pay("k", "first"), http.StatusCreated, "paid", middleware.Replayed); e.Differs {
		t.Error("the same response differs")
	}
	s.Want(s.Pay("", "no key"), http.StatusCreated, "paid", middleware.Unprotected)
	s.WantRuns(4)
	for known := map[string]bool{}; len(known) < 3; {
		key := <-keys
		if key == "" || known[key] {
			t.Fatalf("the key %q, after %v", key, known)
		}
		known[key] = true
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

func (f Framework[M]) panics(t *testing.T) {
	for want, wrong := range map[string]func(){
		f.Package + ".User: fn is nil":              func() { f.User(nil) },
		"middleware.Idempotency: the locker is nil": func() { f.Idempotency(nil, keyfunc.Body()) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic %v, want %q", got, want)
				}
			}()
			wrong()
		}()
	}
}
