package adaptertest

import (
	"errors"
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

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
