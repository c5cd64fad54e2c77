package adaptertest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// Echo is echo v4 or v5. EchoTests runs what they have in common beside Tests.
type Echo[M any] struct {
	Framework[M]
	NewHTTPError   func(status int, message string) error
	ContextTimeout func(time.Duration) M
	Gzip           M
	BodyLimit      M // of 4 bytes
}

// EchoContext is what the tests need of echo's context.
type EchoContext interface {
	Context
	Error(err error) // calls the HTTPErrorHandler
	Before(f func()) // of the response
}

// EchoRouter is an echo server.
type EchoRouter[M any] interface {
	Router[M]
	HandleErrors(func(err error, c Context)) // sets the HTTPErrorHandler
}

// EchoTests runs the tests that echo v4 and v5 have in common.
func (f Echo[M]) EchoTests(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"returned error": f.returnedError, "error handler that does not check committed": f.careless,
		"rolled back": f.returnedAfterRollback, "dropped after a rollback": f.droppedAfterRollback, "before": f.before,
		"context timeout outside": f.contextTimeout, "body limit outside": f.bodyLimit,
	} {
		t.Run(name, test)
	}
}

func (s *Site[M]) handleErrors(h func(err error, c Context)) {
	s.Router.(EchoRouter[M]).HandleErrors(h)
}

// An error is stored as the central HTTPErrorHandler writes it, which is not called for a replay.
func (f Echo[M]) returnedError(t *testing.T) {
	s := f.NewSite(t)
	rendered := 0
	s.handleErrors(func(err error, c Context) {
		if !c.Seen().Written {
			rendered++
			_ = c.String(http.StatusPaymentRequired, err.Error())
		}
	})
	s.Protect(fail)
	s.Want(s.Pay("k", "1"), http.StatusPaymentRequired, "no cover", middleware.Executed)
	if got := <-s.Seen; !errors.Is(got.Err, ErrNoCover) || got.Status != http.StatusPaymentRequired || !got.Written {
		t.Errorf("a middleware outside sees %+v, want the error and its response", got)
	}
	s.Want(s.Pay("k", "1"), http.StatusPaymentRequired, "no cover", middleware.Replayed)
	if got := <-s.Seen; got.Err != nil {
		t.Errorf("a replay returns the error %v", got.Err)
	}
	if s.WantRuns(1); rendered != 1 {
		t.Errorf("rendered %d times, want once", rendered)
	}
}

// echo calls the HTTPErrorHandler again after the middlewares have returned. One that does not check Committed does not
// add a second response to the first.
func (f Echo[M]) careless(t *testing.T) {
	const body = "this is not to be doubled"
	answerAndFail := func(c Context) error {
		_ = c.String(http.StatusPaymentRequired, body)
		return ErrNoCover
	}
	router := f.New()
	pass := router.Middleware(func(next Handler) Handler { return next })
	callErrorHandler := router.Middleware(func(next Handler) Handler {
		return func(c Context) error {
			err := next(c)
			if err != nil {
				c.(EchoContext).Error(err)
			}
			return err
		}
	})
	for name, test := range map[string]struct {
		h     Handler
		outer M
		opt   middleware.Option
	}{
		"an error":                {fail, pass, middleware.WithRequired()},
		"an answer, and an error": {answerAndFail, pass, middleware.WithRequired()},
		"called by a logger":      {fail, callErrorHandler, middleware.WithRequired()},
		"compressed":              {fail, f.Gzip, middleware.WithRequired()},
		"in shadow":               {fail, pass, middleware.WithShadow()},
	} {
		t.Run(name, func(t *testing.T) {
			s := f.NewSite(t, test.opt)
			s.handleErrors(func(_ error, c Context) { _ = c.JSON(http.StatusPaymentRequired, body) })
			want := "\"" + body + "\"\n"
			if name == "an answer, and an error" {
				want = body
			}
			s.Router.Use(test.outer)
			s.Protect(test.h)
			for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
				s.Want(s.Pay("k", "1"), http.StatusPaymentRequired, want, outcome)
				got := <-s.Seen
				if replay := outcome == middleware.Replayed && name != "in shadow"; (got.Err == nil) != replay {
					t.Errorf("a middleware outside gets the error %v", got.Err)
				}
				if got.Status != http.StatusPaymentRequired || !got.Written {
					t.Errorf("a middleware outside sees %+v", got)
				}
			}
		})
	}
}

// An error that is returned after a transaction that was rolled back is the response.
func (f Echo[M]) returnedAfterRollback(t *testing.T) {
	for name, early := range map[string]bool{"": false, "early hints": true} {
		t.Run(name, func(t *testing.T) {
			j := &Journal{Failures: 1}
			s := f.NewSite(t, middleware.WithJournal(j))
			s.Protect(func(c Context) error {
				if early {
					_ = c.EarlyHints()
				}
				_ = j.InTx(c.Request().Context(), func() { _ = pay(c) })
				return f.NewHTTPError(http.StatusPaymentRequired, "failed")
			})
			for _, outcome := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
				s.Want(s.Pay("k", "1"), http.StatusPaymentRequired, "{\"message\":\"failed\"}\n", outcome)
			}
		})
	}
}

// What echo drops of an answer after a transaction that was rolled back is no success.
func (f Echo[M]) droppedAfterRollback(t *testing.T) {
	for name, h := range map[string]Handler{
		"a status alone": func(c Context) error { return c.NoContent(http.StatusPaymentRequired) },
		"a bare write": func(c Context) error {
			_, err := c.Writer().Write([]byte("failed"))
			return err
		},
		"nothing": func(Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			j := &Journal{Failures: 1}
			s := f.NewSite(t, middleware.WithJournal(j))
			s.Protect(func(c Context) error {
				_ = j.InTx(c.Request().Context(), func() { _ = pay(c) })
				return h(c)
			})
			s.Want(s.Pay("k", "1"), http.StatusInternalServerError, "*", middleware.Freed)
		})
	}
}

// What an outer middleware has asked to be called before the response is called for a run and for a replay.
func (f Echo[M]) before(t *testing.T) {
	s := f.NewSite(t)
	s.Use(func(next Handler) Handler {
		return func(c Context) error {
			c.(EchoContext).Before(func() { c.Writer().Header().Set("X-Before", "outer") })
			return next(c)
		}
	})
	s.Protect(pay)
	for range 2 {
		if a := s.Pay("k", "1"); a.Header.Get("X-Before") != "outer" {
			t.Errorf("the outer Before set %q", a.Header.Get("X-Before"))
		}
	}
}

// The deadline of a ContextTimeout outside passes, and the handler returns its error: 503 as from echo alone, and no retry
// runs in the time of the lease, because the effect may be there.
func (f Echo[M]) contextTimeout(t *testing.T) {
	wait := func(c Context) error {
		<-c.Request().Context().Done()
		return fmt.Errorf("the provider: %w", c.Request().Context().Err())
	}
	answer := func(c Context) error {
		<-c.Request().Context().Done()
		return c.String(http.StatusAccepted, "later")
	}
	discard := func(c Context) error {
		_ = middleware.FromContext(c.Request().Context()).Discard()
		return wait(c)
	}
	other := func(c Context) error {
		<-c.Request().Context().Done()
		return ErrNoCover
	}
	atMostOnce, shadow := []middleware.Option{middleware.WithAtMostOnce()}, []middleware.Option{middleware.WithShadow()}
	for name, test := range map[string]struct {
		h              Handler
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
			for !f.timesOut(t, timeout, test.h, test.opts, test.outcome, test.again) && timeout < time.Minute {
				timeout *= 2
			}
		})
	}
}

// timesOut sends a request to h below a ContextTimeout, and a retry. It reports whether each of them has reached Redis in
// time.
func (f Echo[M]) timesOut(t *testing.T, timeout time.Duration, h Handler, opts []middleware.Option, outcome, again middleware.Outcome) bool {
	t.Helper()
	s := f.NewSite(t, opts...)
	s.Router.Use(f.ContextTimeout(timeout))
	s.Router.Add(http.MethodPost, "/bare", h)
	s.Protect(h)
	bare, first := s.Post("/bare", "k", "1"), s.Pay("k", "1")
	e := <-s.Events
	s.Pay("k", "1")
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
func (f Echo[M]) bodyLimit(t *testing.T) {
	for name, test := range map[string]struct {
		opts    []middleware.Option
		outcome middleware.Outcome
	}{
		"protected":   {nil, middleware.TooLarge},
		"in shadow":   {[]middleware.Option{middleware.WithShadow()}, middleware.TooLarge},
		"without key": {nil, middleware.Unprotected},
	} {
		t.Run(name, func(t *testing.T) {
			s := f.NewSite(t, test.opts...)
			s.Router.Use(f.BodyLimit)
			h := func(c Context) error {
				_, err := io.ReadAll(c.Request().Body)
				return err
			}
			s.Router.Add(http.MethodPost, "/bare", h)
			s.Protect(h)
			send := func(path string) Answer {
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
				WantSame(t, "the response", a, bare)
			}
			s.Want(s.Pay("k2", "ok"), http.StatusOK, "", middleware.Executed)
		})
	}
}
