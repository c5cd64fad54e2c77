package adaptertest

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// EchoTests runs the tests of echo v4 or v5.
func (f Framework) EchoTests(t *testing.T) {
	f.Rows = f.echoRows()
	f.Tests(t)
}

// echoRows are what echo v4 and v5 have in common.
func (f Framework) echoRows() map[string]Row {
	// echo calls the HTTPErrorHandler again after the middlewares have returned. One that does not check Committed does not
	// add a second response to the first.
	careless := func(_ error, c Context) { _ = c.String(http.StatusPaymentRequired, "careless") }
	callsErrorHandler := func(next Handler) Handler {
		return func(c Context) error {
			err := next(c)
			if err != nil {
				careless(err, c)
			}
			return err
		}
	}
	before := func(next Handler) Handler {
		return func(c Context) error {
			header := c.Writer().Header()
			header.Set(givenUp, "1")
			c.(interface{ Before(f func()) }).Before(func() { header.Del(givenUp) })
			return next(c)
		}
	}
	shadow := []middleware.Option{middleware.WithShadow()}
	answersAndFails := func(c Context) error {
		_ = Pay(c)
		return ErrNoCover
	}
	tooLarge := []Want{{
		Status: http.StatusRequestEntityTooLarge, Body: "*", Outcome: middleware.Unprotected, Send: "too long", NoKey: true,
	}}
	stored := Stored(http.StatusPaymentRequired, "careless")
	rows := map[string]Row{
		"an error":                     {Errors: careless, Handler: Fail, Want: stored},
		"an error in shadow":           {Errors: careless, Handler: Fail, Want: stored, Options: shadow},
		"an error, called by a logger": {Errors: careless, Handler: Fail, Want: stored, Outside: []Middleware{callsErrorHandler}},
		"an error, compressed":         {Errors: careless, Handler: Fail, Want: stored, Outside: []Middleware{f.Gzip}},
		"an answer, and an error":      {Errors: careless, Handler: answersAndFails, Want: Stored(http.StatusCreated, "paid")},
		"body limit without a key":     {Outside: []Middleware{f.Limit}, Handler: echo, Want: tooLarge},
		"what Before was told":         {Handler: Pay, Want: Stored(http.StatusCreated, "paid"), Outside: []Middleware{before}},
		"body limit in shadow": {
			Options: shadow, Outside: []Middleware{f.Limit}, Handler: echo,
			Want: []Want{{Status: http.StatusRequestEntityTooLarge, Body: "*", Outcome: middleware.TooLarge, Send: "too long"}},
		},
	}
	// What echo drops of an answer after a transaction that was rolled back is no success. An error is the response.
	for name, h := range map[string]Handler{
		"a status alone": func(c Context) error { return c.NoContent(http.StatusPaymentRequired) },
		"a bare write": func(c Context) error {
			_, err := c.Writer().Write([]byte("failed"))
			return err
		},
		"nothing": func(Context) error { return nil },
	} {
		rows["rolled back, "+name] = RolledBack(1, func(c Context, j *Journal) error {
			_ = j.InTx(c, Pay)
			return h(c)
		}, Freed(http.StatusInternalServerError, "*")[:1])
	}
	for name, first := range map[string]Handler{
		"an error": func(Context) error { return nil }, "an error after early hints": EarlyHints,
	} {
		rows["rolled back, "+name] = RolledBack(1, func(c Context, j *Journal) error {
			_ = first(c)
			_ = j.InTx(c, Pay)
			return c.Fail(http.StatusPaymentRequired)
		}, Stored(http.StatusPaymentRequired, "{\"message\":\"failed\"}\n"))
	}
	// fault: the deadline of echo's ContextTimeout outside passes, and the handler returns its error -> 503 as from echo
	// alone, and no retry runs in the time of the lease, because the effect may be there
	timedOut := Want{
		Status: http.StatusServiceUnavailable, Body: "*", Outcome: middleware.Unknown, LeftOpen: "deadline",
	}
	ended := fmt.Errorf("the provider: %w", context.DeadlineExceeded)
	for name, test := range map[string]struct {
		passes bool
		err    error
		want   []Want
	}{
		"a deadline outside passes":               {true, ended, []Want{timedOut, inFlight}},
		"a deadline outside, and another error":   {true, ErrNoCover, Freed(http.StatusInternalServerError, "*")},
		"a deadline outside, and another's error": {false, ended, Freed(http.StatusInternalServerError, "*")},
	} {
		d := &deadline{}
		rows[name] = Row{
			Outside: []Middleware{f.Timeout, d.middleware},
			Handler: func(Context) error {
				d.passed.Store(test.passes)
				return test.err
			},
			Want: test.want,
		}
	}
	return rows
}

// deadline is one of a request that passes when the test says so.
type deadline struct {
	context.Context
	passed atomic.Bool
}

func (d *deadline) Deadline() (time.Time, bool) {
	if d.passed.Load() {
		return time.Now(), true
	}
	return time.Now().Add(time.Hour), true
}

func (d *deadline) middleware(next Handler) Handler {
	return func(c Context) error {
		r := c.Request()
		defer c.SetRequest(r)
		d.passed.Store(false)
		d.Context = r.Context()
		c.SetRequest(r.WithContext(d))
		return next(c)
	}
}
