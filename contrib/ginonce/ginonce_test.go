package ginonce_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"

	"github.com/onceguard/onceguard/contrib/ginonce"
	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

const lease = 10 * time.Second // the default

func pay(c *gin.Context) { c.String(http.StatusCreated, "paid") }

// byHand is how one would use middleware.Idempotency with gin without this package.
func byHand(t *testing.T, s *service) gin.HandlerFunc {
	once := middleware.Idempotency(s.OtherLocker(), keyfunc.Standard(keyfunc.Anonymous()), s.Observer())
	return func(c *gin.Context) {
		once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		c.Abort()
	}
}

func TestConflicts(t *testing.T) {
	s := newService(t, middleware.WithRequired())
	entered, leave := make(chan struct{}), make(chan struct{})
	s.engine.POST("/payments", s.once, s.counted(func(c *gin.Context) {
		close(entered)
		<-leave
		pay(c)
	}))
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

// Where the middleware answers itself, no later handler runs, and those before it see that the chain was aborted.
func TestAnswersAbortTheChain(t *testing.T) {
	s := newService(t)
	aborted := make(chan bool, 10)
	s.engine.Use(func(c *gin.Context) {
		c.Next()
		aborted <- c.IsAborted()
	})
	s.engine.POST("/payments", s.once, s.counted(func(*gin.Context) {}), s.counted(pay))
	for i, test := range []struct {
		body    string
		status  int
		aborted bool
	}{{"1", 201, false}, {"1", 201, true}, {"2", 422, true}} {
		a := s.Post("/payments", "k", test.body)
		if got := <-aborted; a.Status != test.status || got != test.aborted {
			t.Errorf("request %d: status %d, aborted %v; want %d, %v", i+1, a.Status, got, test.status, test.aborted)
		}
	}
	s.WantRuns(2)
}

// A panic goes through this middleware to the Recovery before it, and leaves the key to run out.
func TestPanicWithRecoveryOutside(t *testing.T) {
	s := newService(t)
	s.engine.Use(gin.RecoveryWithWriter(nil))
	panics := true
	s.engine.POST("/payments", s.once, s.counted(func(c *gin.Context) {
		if panics {
			c.Header("Location", "/orders/1")
			c.String(http.StatusCreated, "paid")
			panic("no")
		}
		pay(c)
	}))
	a := s.Post("/payments", "k", "1")
	s.Want(a, http.StatusInternalServerError, "", middleware.Panicked)
	if a.Header.Get("Location") != "" {
		t.Error("the header of the response that was given up went out")
	}
	if got := <-s.seen; got.status != http.StatusInternalServerError {
		t.Errorf("a middleware outside sees %+v, want a 500", got)
	}
	s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, "*", middleware.InFlight)
	panics = false
	s.Redis.FastForward(lease)
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.Executed)
	s.WantRuns(2)
}

// Without any Recovery net/http gets the panic.
func TestPanicWithoutRecovery(t *testing.T) {
	s := newService(t)
	s.engine.POST("/payments", s.once, func(*gin.Context) { panic("no") })
	if a := s.Post("/payments", "k", "1"); a.Err == nil {
		t.Errorf("status %d, want a broken connection", a.Status)
	}
	s.WantEvent(middleware.Panicked)
}

// A Recovery inside makes a response of the panic, which frees the key: that is why it must be outside.
func TestPanicWithRecoveryInside(t *testing.T) {
	s := newService(t)
	s.engine.POST("/payments", s.once, gin.RecoveryWithWriter(nil), s.counted(func(*gin.Context) { panic("no") }))
	for range 2 {
		s.Want(s.Post("/payments", "k", "1"), http.StatusInternalServerError, "", middleware.Freed)
	}
	s.WantRuns(2)
}

// renderErrors is a middleware that answers where a handler has only reported an error.
func renderErrors(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 && c.Writer.Size() <= 0 {
		c.JSON(http.StatusPaymentRequired, gin.H{"error": c.Errors.Last().Error()})
	}
}

func TestErrorsRenderedInside(t *testing.T) {
	s := newService(t)
	s.engine.POST("/payments", s.once, renderErrors, s.counted(func(c *gin.Context) { _ = c.Error(errors.New("no cover")) }))
	const body = `{"error":"no cover"}`
	s.Want(s.Post("/payments", "k", "1"), http.StatusPaymentRequired, body, middleware.Executed)
	s.Want(s.Post("/payments", "k", "1"), http.StatusPaymentRequired, body, middleware.Replayed)
	s.WantRuns(1)
}

// What an outer middleware renders cannot be stored. No empty 200 is stored for it.
func TestErrorsRenderedOutside(t *testing.T) {
	fail := func(c *gin.Context) { _ = c.Error(errors.New("no cover")) }
	keep := func(c *gin.Context) { middleware.FromContext(c.Request.Context()).Keep(); fail(c) }
	atMostOnce := []middleware.Option{middleware.WithAtMostOnce()}
	for name, test := range map[string]struct {
		h       gin.HandlerFunc
		opts    []middleware.Option
		outcome middleware.Outcome
		again   middleware.Outcome // of a retry once the lease is over
		status  int                // of the same
		runs    int64
	}{
		"an error":                          {fail, nil, middleware.Unknown, middleware.Unknown, http.StatusPaymentRequired, 2},
		"a status and error":                {func(c *gin.Context) { c.Status(400); fail(c) }, nil, middleware.Unknown, middleware.Unknown, http.StatusPaymentRequired, 2},
		"the effect is there":               {keep, nil, middleware.NotStored, middleware.NotReplayable, http.StatusConflict, 1},
		"at most once":                      {fail, atMostOnce, middleware.Unknown, middleware.OutcomeUnknown, http.StatusConflict, 1},
		"at most once, the effect is there": {keep, atMostOnce, middleware.NotStored, middleware.NotReplayable, http.StatusConflict, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, test.opts...)
			s.engine.Use(renderErrors)
			s.engine.POST("/payments", s.once, s.counted(test.h))
			a := s.Post("/payments", "k", "1")
			adaptertest.WantLeftOpen(t, s.WantEvent(test.outcome))
			if a.Status != http.StatusPaymentRequired || a.Body != `{"error":"no cover"}` {
				t.Errorf("got %d %q, want what the outer middleware renders", a.Status, a.Body)
			}
			if again := s.Post("/payments", "k", "1"); again.Status != http.StatusConflict {
				t.Errorf("status %d of a retry at once, want 409", again.Status)
			}
			<-s.Events
			s.Redis.FastForward(lease)
			s.Want(s.Post("/payments", "k", "1"), test.status, "*", test.again)
			s.WantRuns(test.runs)
		})
	}
}

// A handler that knows that nothing has happened can say so: a retry runs at once.
func TestErrorsRenderedOutsideAfterDiscard(t *testing.T) {
	s := newService(t, middleware.WithAtMostOnce())
	s.engine.Use(renderErrors)
	s.engine.POST("/payments", s.once, s.counted(func(c *gin.Context) {
		_ = middleware.FromContext(c.Request.Context()).Discard()
		_ = c.Error(errors.New("no cover"))
	}))
	for range 2 {
		s.Want(s.Post("/payments", "k", "1"), http.StatusPaymentRequired, `{"error":"no cover"}`, middleware.Freed)
	}
	s.WantRuns(2)
}

// In shadow the Event says it before the middleware acts, and the response is the outer middleware's.
func TestShadowErrorsRenderedOutside(t *testing.T) {
	s := newService(t, middleware.WithShadow())
	s.engine.Use(renderErrors)
	s.engine.POST("/payments", s.once, func(c *gin.Context) { _ = c.Error(errors.New("no cover")) })
	adaptertest.WantLeftOpen(t, s.Want(s.Post("/payments", "k", "1"), http.StatusPaymentRequired, `{"error":"no cover"}`, middleware.Unknown))
}

// An outer middleware that renders keeps the status that the handler has set, as without this package.
func TestOuterMiddlewareKeepsTheStatus(t *testing.T) {
	s := newService(t)
	s.engine.Use(func(c *gin.Context) {
		c.Next()
		c.JSON(-1, "rendered")
	})
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		c.Status(http.StatusConflict)
		_ = c.Error(io.EOF)
	})
	s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, `"rendered"`, middleware.Unknown)
}

// Requests without a route get gin's own answer, and take no key.
func TestNoRoute(t *testing.T) {
	s := newService(t)
	s.engine.HandleMethodNotAllowed = true
	s.engine.Use(s.once)
	s.engine.GET("/payments", pay)
	for range 2 {
		s.Want(s.Post("/nowhere", "k", "1"), http.StatusNotFound, "404 page not found", middleware.Freed)
		s.Want(s.Post("/payments", "k", "1"), http.StatusMethodNotAllowed, "405 method not allowed", middleware.Freed)
	}
	s.engine.NoRoute(s.counted(func(c *gin.Context) { c.String(http.StatusOK, "proxied") }))
	s.Want(s.Post("/nowhere", "k", "1"), http.StatusOK, "proxied", middleware.Executed)
	s.Want(s.Post("/nowhere", "k", "1"), http.StatusOK, "proxied", middleware.Replayed)
	s.WantRuns(1)
}

// A request that is not protected passes untouched.
func TestUnprotected(t *testing.T) {
	s := newService(t)
	var outer *http.Request
	var writer gin.ResponseWriter
	s.engine.Use(func(c *gin.Context) {
		outer, writer = c.Request, c.Writer
		c.Next()
	}, s.once)
	h := func(c *gin.Context) {
		if c.Request != outer || c.Writer != writer || middleware.FromContext(c.Request.Context()) != nil {
			t.Error("the handler has another request or writer")
		}
		body, err := io.ReadAll(c.Request.Body)
		c.String(http.StatusOK, "%s %v", body, err)
	}
	s.engine.PUT("/payments", h)
	s.engine.POST("/payments", h)
	if a := s.Send(http.MethodPut, "/payments", "k", "1"); a.Body != "1 <nil>" || len(s.Events) > 0 {
		t.Errorf("PUT: %q", a.Body)
	}
	s.Want(s.Post("/payments", "", "1"), http.StatusOK, "1 <nil>", middleware.Unprotected)
}

// With WithFailOpen the request runs with its body although Redis is gone.
func TestFailOpen(t *testing.T) {
	s := newService(t, middleware.WithFailOpen())
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		body, _ := c.GetRawData()
		c.String(http.StatusOK, "%s", body)
	})
	s.Away.Store(true)
	s.Want(s.Post("/payments", "k", "1"), http.StatusOK, "1", middleware.Unprotected)
}

func TestStoreUnavailable(t *testing.T) {
	s := newService(t)
	s.engine.POST("/payments", s.once, s.counted(pay))
	s.Away.Store(true)
	s.Want(s.Post("/payments", "k", "1"), http.StatusServiceUnavailable, "*", middleware.StoreUnavailable)
	s.WantRuns(0)
}

// Mounted twice, it takes effect once.
func TestMountedTwice(t *testing.T) {
	s := newService(t)
	s.engine.Use(s.once)
	s.engine.POST("/payments", s.once, s.counted(pay))
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.Executed)
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.Replayed)
	s.WantRuns(1)
}

// Groups, parameters and the route's pattern; what c has from outer middlewares; and c itself afterwards.
func TestContext(t *testing.T) {
	s := newService(t)
	type ctxKey struct{}
	s.engine.ContextWithFallback = true
	s.engine.Use(func(c *gin.Context) {
		c.Set("user", "ann")
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), ctxKey{}, "outer"))
		r, w := c.Request, c.Writer
		c.Next()
		if c.Request != r || c.Writer != w || c.Request.Context().Err() != nil || c.GetString("set inside") != "yes" && !c.IsAborted() {
			t.Error("c is not as it was")
		}
	})
	group := s.engine.Group("/users/:user", s.once)
	group.POST("/payments", func(c *gin.Context) {
		c.Set("set inside", "yes")
		run := middleware.FromContext(c.Request.Context())
		if run == nil || run != middleware.FromContext(c) || run.Key() == "" {
			t.Error("the run is not in the request's context, or with ContextWithFallback not in c")
		}
		if c.Request.Pattern != "/users/:user/payments" || c.Param("user") != "42" || c.GetString("user") != "ann" {
			t.Errorf("pattern %q, param %q, value %q", c.Request.Pattern, c.Param("user"), c.GetString("user"))
		}
		if c.Request.Context().Value(ctxKey{}) != "outer" || c.Value(ctxKey{}) != "outer" {
			t.Error("the values of the outer context are lost")
		}
		if _, limited := c.Deadline(); !limited {
			t.Error("the run's deadline is not in c")
		}
		pay(c)
	})
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		e := s.Want(s.Post("/users/42/payments", "k", "1"), http.StatusCreated, "paid", outcome)
		if e.Pattern != "/users/:user/payments" {
			t.Errorf("%s: the Event has the pattern %q", outcome, e.Pattern)
		}
	}
}

// The handler says that nothing has happened: a retry runs.
func TestDiscard(t *testing.T) {
	s := newService(t)
	s.engine.POST("/payments", s.once, s.counted(func(c *gin.Context) {
		_ = middleware.FromContext(c.Request.Context()).Discard()
		c.AbortWithStatusJSON(http.StatusConflict, "try again")
	}))
	for range 2 {
		s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, `"try again"`, middleware.Freed)
	}
	s.WantRuns(2)
}

func TestBody(t *testing.T) {
	s := newService(t)
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		var first, second struct{ Amount int }
		err := errors.Join(c.ShouldBindBodyWith(&first, binding.JSON), c.ShouldBindBodyWith(&second, binding.JSON))
		c.String(http.StatusOK, "%d %d %v", first.Amount, second.Amount, err)
	})
	s.Want(s.Post("/payments", "k", `{"amount":7}`), http.StatusOK, "7 7 <nil>", middleware.Executed)
}

func TestCookies(t *testing.T) {
	s := newService(t, middleware.WithCookies())
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		c.SetCookie("order", "1", 60, "/", "", true, true)
		pay(c)
	})
	for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
		a := s.Post("/payments", "k", "1")
		s.Want(a, http.StatusCreated, "paid", outcome)
		if !strings.HasPrefix(a.Header.Get("Set-Cookie"), "order=1") {
			t.Errorf("Set-Cookie %q", a.Header.Get("Set-Cookie"))
		}
	}
}

// The user comes from gin's own context.
func TestUser(t *testing.T) {
	s := newService(t)
	once := ginonce.Idempotency(s.OtherLocker(), keyfunc.Standard(ginonce.User(func(c *gin.Context) string { return c.GetHeader("X-User") })))
	s.engine.POST("/payments", once, s.counted(pay))
	for _, test := range []struct {
		user   string
		status int
		runs   int64
	}{{"ann", 201, 1}, {"bob", 201, 2}, {"ann", 201, 2}, {"", 401, 2}} {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("X-User", test.user)
		w := httptest.NewRecorder()
		s.engine.ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("user %q: status %d, want %d", test.user, w.Code, test.status)
		}
		s.WantRuns(test.runs)
	}
}

// Outside of this package's Idempotency there is no gin context, and so no user.
func TestUserElsewhere(t *testing.T) {
	key := ginonce.User(func(*gin.Context) string { return "ann" })
	if _, err := key(httptest.NewRequest(http.MethodPost, "/", nil)); !errors.Is(err, keyfunc.ErrNoUser) {
		t.Errorf("error %v, want ErrNoUser", err)
	}
}

func TestPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"ginonce.User: fn is nil":                   func() { ginonce.User(nil) },
		"middleware.Idempotency: the locker is nil": func() { ginonce.Idempotency(nil, keyfunc.Body()) },
		"middleware.WithObserver: f is nil":         func() { middleware.WithObserver(nil) },
		"middleware.Idempotency: key is nil":        func() { ginonce.Idempotency(newService(t).OtherLocker(), nil) },
		"middleware.Idempotency: option 1 is nil":   func() { ginonce.Idempotency(newService(t).OtherLocker(), keyfunc.Body(), nil) },
		"middleware.WithPlaintextReads: means nothing without WithEncryption": func() {
			ginonce.Idempotency(newService(t).OtherLocker(), keyfunc.Body(), middleware.WithPlaintextReads())
		},
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

// hijack answers on the connection itself.
func hijack(c *gin.Context) {
	conn, _, err := c.Writer.Hijack()
	if err != nil || !c.Writer.Written() {
		c.String(http.StatusTeapot, "error %v, written %v", err, c.Writer.Written())
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 4\r\n\r\npaid")
}

// A connection that was hijacked has had its response: a retry does not run.
func TestHijack(t *testing.T) {
	s := newService(t)
	s.engine.POST("/payments", s.once, s.counted(hijack))
	s.Want(s.Post("/payments", "k", "1"), http.StatusCreated, "paid", middleware.NotStored)
	s.Want(s.Post("/payments", "k", "1"), http.StatusConflict, "*", middleware.NotReplayable)
	s.WantRuns(1)
}

// A client that leaves does not end the stream: its retry gets all of it.
func TestClientLeavesStream(t *testing.T) {
	s := newService(t)
	left := make(chan struct{})
	var gone <-chan struct{} // net/http cancels the request's own context when the client has left
	s.engine.POST("/payments", func(c *gin.Context) {
		gone = c.Request.Context().Done()
		c.Next()
	}, s.once, s.counted(func(c *gin.Context) {
		n := 0
		c.Stream(func(w io.Writer) bool {
			if n++; n == 2 {
				close(left)
				<-gone
			}
			_, _ = io.WriteString(w, "x")
			return n < 4
		})
	}))
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.Server.URL+"/payments", nil)
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "application/json")
	res, err := s.Server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	<-left
	cancel()
	res.Body.Close()
	s.WantEvent(middleware.Executed)
	s.Want(s.Post("/payments", "k", ""), http.StatusOK, "xxxx", middleware.Replayed)
	s.WantRuns(1)
}

// A stream ends when its run is given up.
func TestStreamEndsWithTheRun(t *testing.T) {
	s := newService(t, middleware.WithMaxDuration(time.Millisecond))
	ended := make(chan bool, 1)
	s.engine.POST("/payments", s.once, func(c *gin.Context) {
		ended <- c.Stream(func(w io.Writer) bool {
			<-c.Request.Context().Done()
			_, _ = io.WriteString(w, "x")
			return true
		})
	})
	if a := s.Post("/payments", "k", "1"); a.Status != http.StatusOK || !<-ended {
		t.Errorf("status %d", a.Status)
	}
}

// A handler that returns without an answer after its deadline has not answered 200.
func TestDeadline(t *testing.T) {
	s := newService(t, middleware.WithMaxDuration(time.Millisecond))
	s.engine.POST("/payments", s.once, func(c *gin.Context) { <-c.Request.Context().Done() })
	s.Want(s.Post("/payments", "k", "1"), http.StatusGatewayTimeout, "", middleware.Unknown)
}
