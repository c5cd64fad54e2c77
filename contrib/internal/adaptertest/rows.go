package adaptertest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// Row is a handler with what is around it, and what the client gets.
type Row struct {
	Options []middleware.Option
	Errors  func(err error, c Context) // in place of the framework's own; nil for that
	Outside []Middleware               // the first is the outermost
	Inside  []Middleware
	Handler Handler
	Want    []Want
}

// Want is what a request gets.
type Want struct {
	Status  int
	Body    string // "*" is any
	Outcome middleware.Outcome

	LeftOpen string // a part of the Event's error, if the response is left to others
	Send     string // the request's body
	NoKey    bool
	Later    bool // the lease of an earlier run is over
}

// Stored are a run and a replay, Freed two runs.
func Stored(status int, body string) []Want {
	return []Want{
		{Status: status, Body: body, Outcome: middleware.Executed},
		{Status: status, Body: body, Outcome: middleware.Replayed},
	}
}

func Freed(status int, body string) []Want {
	freed := Want{Status: status, Body: body, Outcome: middleware.Freed}
	return []Want{freed, freed}
}

var (
	inFlight      = Want{Status: http.StatusConflict, Body: "*", Outcome: middleware.InFlight}
	notReplayable = Want{Status: http.StatusConflict, Body: "*", Outcome: middleware.NotReplayable}
)

// LeftOpen is a run whose error is rendered outside with 402.
func LeftOpen(outcome middleware.Outcome) Want {
	return Want{Status: http.StatusPaymentRequired, Body: "no cover", Outcome: outcome, LeftOpen: "once, render"}
}

func later(w Want) Want {
	w.Later = true
	return w
}

// givenUp is in the header of a response that must not be sent.
const givenUp = "Given-Up"

func (f Framework) run(t *testing.T, row Row) {
	t.Helper()
	s := f.NewSite(t, row.Options...)
	if row.Errors != nil {
		s.Router.HandleErrors(row.Errors)
	}
	for _, m := range row.Outside {
		s.Router.Use(m)
	}
	s.Protect(row.Handler, row.Inside...)
	for i, w := range row.Want {
		if w.Later {
			s.Redis.FastForward(10 * time.Second) // the default lease
		}
		key := "k"
		if w.NoKey {
			key = ""
		}
		ran := s.runs
		a := s.Post("/payments/42", key, w.Send)
		e := <-s.Events
		if a.Status != w.Status || a.Body != w.Body && w.Body != "*" || a.Header.Get(givenUp) != "" {
			t.Errorf("request %d: got %d %q %v, want %d %q", i, a.Status, a.Body, a.Header, w.Status, w.Body)
		}
		if e.Outcome != w.Outcome || e.Pattern != "/payments/:id" || (s.runs > ran) != !e.Handler.Start.IsZero() {
			t.Errorf("request %d: %d runs, and %+v, want the outcome %s", i, s.runs-ran, e, w.Outcome)
		}
		if w.LeftOpen != "" && (e.Status != 0 || e.Err == nil || !strings.Contains(e.Err.Error(), w.LeftOpen)) {
			t.Errorf("request %d: the Event has the status %d and the error %v", i, e.Status, e.Err)
		}
		if len(s.Events) > 0 {
			t.Errorf("request %d: another Event", i)
		}
	}
}

// rows are what all frameworks have in common.
func (f Framework) rows() map[string]Row {
	silent := func(error, Context) {}
	shadow := []middleware.Option{middleware.WithShadow()}
	panics := func(c Context) error {
		c.Writer().Header().Set(givenUp, "1")
		_ = Pay(c)
		panic("no")
	}
	panicked := Want{Status: http.StatusInternalServerError, Body: f.Recovered, Outcome: middleware.Panicked}
	unprotected := []Want{{Status: http.StatusOK, Body: "1", Outcome: middleware.Unprotected, NoKey: true, Send: "1"}}
	tooLarge := []Want{
		{Status: http.StatusRequestEntityTooLarge, Body: "*", Outcome: middleware.TooLarge, Send: "too long"},
		{Status: http.StatusOK, Body: "ok", Outcome: middleware.Executed, Send: "ok"},
	}
	return map[string]Row{
		"another request": {
			Handler: Pay,
			Want: append(Stored(http.StatusCreated, "paid"), Want{
				Status: http.StatusUnprocessableEntity, Body: "*", Outcome: middleware.Reused, Send: "2",
			}),
		},
		"no key": {
			Handler: func(c Context) error {
				if middleware.FromContext(c.Request().Context()) != nil {
					return c.NoContent(http.StatusTeapot)
				}
				return echo(c)
			},
			Want: unprotected,
		},
		// In shadow every request runs with a key of its own.
		"another request, in shadow": {
			Options: shadow,
			Handler: func(c Context) error {
				if middleware.FromContext(c.Request().Context()).Key() == "" {
					return c.NoContent(http.StatusTeapot)
				}
				return echo(c)
			},
			Want: []Want{
				{Status: http.StatusOK, Body: "1", Outcome: middleware.Executed, Send: "1"},
				{Status: http.StatusOK, Body: "2", Outcome: middleware.Reused, Send: "2"},
			},
		},
		// fault: the body is longer than a limit outside, and has no Content-Length -> 413, not 400
		"body limit outside": {Outside: []Middleware{f.Limit}, Handler: echo, Want: tooLarge},
		// Recover must be outside: inside, it makes a response of the panic, which frees the key.
		"panic, Recover outside": {
			Outside: []Middleware{f.Recover},
			Handler: panics,
			Want:    []Want{panicked, inFlight, later(panicked)},
		},
		"panic, Recover inside": {
			Inside:  []Middleware{f.Recover},
			Handler: func(Context) error { panic("no") },
			Want:    Freed(http.StatusInternalServerError, "*"),
		},
		// A connection that was hijacked has had its response: a retry does not run.
		"hijacked": {
			Handler: hijack,
			Want:    []Want{{Status: http.StatusCreated, Body: "paid", Outcome: middleware.NotStored}, notReplayable},
		},
		"hijacked in shadow": {
			Options: shadow,
			Handler: hijack,
			Want:    []Want{{Status: http.StatusCreated, Body: "paid", Outcome: middleware.NotStored}},
		},
		"error rendered inside": {
			Inside:  []Middleware{Render},
			Handler: Fail,
			Want:    Stored(http.StatusPaymentRequired, "no cover"),
		},
		// What is left to outer middlewares cannot be stored, and is no 200.
		"error rendered outside": {
			Errors:  silent,
			Outside: []Middleware{Render},
			Handler: Fail,
			Want:    []Want{LeftOpen(middleware.Unknown), inFlight, later(LeftOpen(middleware.Unknown))},
		},
		"error rendered outside, in shadow": {
			Options: shadow,
			Errors:  silent,
			Outside: []Middleware{Render},
			Handler: Fail,
			Want:    []Want{LeftOpen(middleware.Unknown)},
		},
		"error rendered outside, the effect is there": {
			Errors:  silent,
			Outside: []Middleware{Render},
			Handler: func(c Context) error {
				middleware.FromContext(c.Request().Context()).Keep()
				return ErrNoCover
			},
			Want: []Want{LeftOpen(middleware.NotStored), notReplayable},
		},
		"error rendered outside, nothing happened": {
			Errors:  silent,
			Outside: []Middleware{Render},
			Handler: func(c Context) error {
				_ = middleware.FromContext(c.Request().Context()).Discard()
				return ErrNoCover
			},
			Want: Freed(http.StatusPaymentRequired, "no cover"),
		},
		// An error that becomes a response frees the key if that response says that nothing has happened.
		"503 with Retry-After":    f.unavailable("Retry-After", Freed(http.StatusServiceUnavailable, "*")),
		"503 without Retry-After": f.unavailable("Other", Stored(http.StatusServiceUnavailable, "*")),
		"no answer at the deadline": {
			Options: []middleware.Option{middleware.WithMaxDuration(time.Millisecond)},
			Handler: func(c Context) error {
				<-c.Request().Context().Done()
				return nil
			},
			Want: []Want{{Status: http.StatusGatewayTimeout, Outcome: middleware.Unknown}},
		},
		// What was written in a transaction that is rolled back is not the response.
		"committed": RolledBack(0, func(c Context, j *Journal) error { return j.InTx(c, Pay) },
			Stored(http.StatusCreated, "paid")),
		"rolled back, and again": RolledBack(1, func(c Context, j *Journal) error {
			_ = j.InTx(c, Pay)
			return j.InTx(c, Pay)
		}, Stored(http.StatusCreated, "paid")),
		"rolled back, a string": RolledBack(1, func(c Context, j *Journal) error {
			_ = j.InTx(c, Pay)
			return c.String(http.StatusPaymentRequired, "failed")
		}, Stored(http.StatusPaymentRequired, "failed")),
		"committed after early hints": RolledBack(0, func(c Context, j *Journal) error {
			_ = EarlyHints(c)
			return j.InTx(c, Pay)
		}, Stored(f.LateStatus, "paid")),
		"rolled back after early hints, JSON": RolledBack(1, func(c Context, j *Journal) error {
			_ = EarlyHints(c)
			_ = j.InTx(c, Pay)
			return c.JSON(http.StatusPaymentRequired, "failed")
		}, Stored(http.StatusPaymentRequired, `"failed"`+f.LineEnd)),
	}
}

// echo answers with the request's body.
func echo(c Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	return c.String(http.StatusOK, string(body))
}

// hijack answers on the connection itself.
func hijack(c Context) error {
	conn, _, err := http.NewResponseController(c.Writer()).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 4\r\n\r\npaid")
	return err
}

func (f Framework) unavailable(header string, want []Want) Row {
	return Row{
		Options: []middleware.Option{middleware.WithAtMostOnce(), middleware.WithNothingHappened(
			func(status int, h http.Header) bool {
				return status == http.StatusServiceUnavailable && h.Get("Retry-After") != ""
			})},
		Handler: func(c Context) error {
			c.Writer().Header().Set(header, "1")
			return c.Fail(http.StatusServiceUnavailable)
		},
		Want: want,
	}
}

// RolledBack is a row in which the first transactions fail.
func RolledBack(failures int, h func(Context, *Journal) error, want []Want) Row {
	j := &Journal{Failures: failures}
	return Row{
		Options: []middleware.Option{middleware.WithJournal(j)},
		Handler: func(c Context) error { return h(c, j) },
		Want:    want,
	}
}
