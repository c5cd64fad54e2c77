package adaptertest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// Row is a handler with what is around it, and what the client gets for one request after the other.
type Row struct {
	Handler Handler
	Around  []any // options; middlewares outside, the first is the outermost; a handler of errors
	Want    []Want
}

// Want is what a request gets. The body "*" is any.
type Want struct {
	Status  int
	Body    string
	Outcome middleware.Outcome

	LeftOpen string // a part of the Event's error, if the response is left to others
	Send     string // the request's body
	NoKey    bool
}

// Stored are a run and a replay.
func Stored(status int, body string) []Want {
	return []Want{
		{Status: status, Body: body, Outcome: middleware.Executed},
		{Status: status, Body: body, Outcome: middleware.Replayed},
	}
}

// Freed are two runs.
func Freed(status int, body string) []Want {
	w := Want{Status: status, Body: body, Outcome: middleware.Freed}
	return []Want{w, w}
}

var (
	inFlight      = Want{Status: http.StatusConflict, Body: "*", Outcome: middleware.InFlight}
	notReplayable = Want{Status: http.StatusConflict, Body: "*", Outcome: middleware.NotReplayable}
	hijacked      = Want{Status: http.StatusCreated, Body: "paid", Outcome: middleware.NotStored}
	leftOpen      = Want{Status: 402, Body: "no cover", Outcome: middleware.Unknown, LeftOpen: "once, render"}
)

// givenUp is in the header of a response that must not be sent.
const givenUp = "Given-Up"

func (f Framework) run(t *testing.T, row Row) {
	t.Helper()
	var opts []middleware.Option
	for _, a := range row.Around {
		if opt, ok := a.(middleware.Option); ok {
			opts = append(opts, opt)
		}
	}
	s := f.NewSite(t, opts...)
	for _, a := range row.Around {
		switch a := a.(type) {
		case Middleware:
			s.Router.Use(a)
		case func(error, Context):
			s.Router.HandleErrors(a)
		}
	}
	s.Protect(row.Handler)
	for i, w := range row.Want {
		key, ran := "k", s.runs
		if w.NoKey {
			key = ""
		}
		a := s.Post("/payments/42", key, w.Send)
		e := <-s.Events
		if a.Status != w.Status || a.Body != w.Body && w.Body != "*" || a.Header.Get(givenUp) != "" {
			t.Errorf("request %d: got %+v, want %+v", i, a, w)
		}
		if e.Outcome != w.Outcome || e.Pattern != "/payments/:id" || (s.runs > ran) != !e.Handler.Start.IsZero() {
			t.Errorf("request %d: %d runs, and %+v, want %s", i, s.runs-ran, e, w.Outcome)
		}
		if w.LeftOpen != "" && (e.Status != 0 || e.Err == nil || !strings.Contains(e.Err.Error(), w.LeftOpen)) {
			t.Errorf("request %d: the Event has the status %d and the error %v", i, e.Status, e.Err)
		}
	}
}

// rows are what all frameworks have in common.
func (f Framework) rows() map[string]Row {
	silent := func(error, Context) {}
	shadow := middleware.WithShadow()
	panicked := Want{Status: 500, Body: f.Recovered, Outcome: middleware.Panicked}
	kept := leftOpen
	kept.Outcome = middleware.NotStored
	return map[string]Row{
		"another request": {Pay, nil, append(Stored(http.StatusCreated, "paid"),
			Want{Status: 422, Body: "*", Outcome: middleware.Reused, Send: "2"})},
		// In shadow every request runs, and has an Execution.
		"another request, in shadow": {answer, []any{shadow}, []Want{
			{Status: 200, Body: "1, run", Outcome: middleware.Executed, Send: "1"},
			{Status: 200, Body: "2, run", Outcome: middleware.Reused, Send: "2"},
		}},
		"no key": {answer, nil, []Want{
			{Status: 200, Body: "1", Outcome: middleware.Unprotected, NoKey: true, Send: "1"},
		}},
		// fault: the body is longer than a limit outside, and has no Content-Length -> 413, not 400
		"body limit outside": {answer, []any{f.Limit}, []Want{
			{Status: 413, Body: "*", Outcome: middleware.TooLarge, Send: "too long"},
			{Status: 200, Body: "ok, run", Outcome: middleware.Executed, Send: "ok"},
		}},
		"panic, Recover outside": {func(c Context) error {
			c.Writer().Header().Set(givenUp, "1")
			_ = Pay(c)
			panic("no")
		}, []any{f.Recover}, []Want{panicked, inFlight}},
		// A connection that was hijacked has had its response: a retry does not run.
		"hijacked":            {hijack, nil, []Want{hijacked, notReplayable}},
		"hijacked, in shadow": {hijack, []any{shadow}, []Want{hijacked}},
		// What is left to outer middlewares cannot be stored, and is no 200.
		"rendered outside":            {Fail, []any{silent, Middleware(Render)}, []Want{leftOpen, inFlight}},
		"rendered outside, in shadow": {Fail, []any{silent, Middleware(Render), shadow}, []Want{leftOpen}},
		"rendered outside, kept": {func(c Context) error {
			middleware.FromContext(c.Request().Context()).Keep()
			return ErrNoCover
		}, []any{silent, Middleware(Render)}, []Want{kept, notReplayable}},
		"no answer at the deadline": {func(c Context) error {
			<-c.Request().Context().Done()
			return nil
		}, []any{middleware.WithMaxDuration(time.Millisecond)}, []Want{{Status: 504, Outcome: middleware.Unknown}}},
		// An error that becomes a response frees the key if that response says that nothing has happened.
		"503 with Retry-After":    unavailable("Retry-After", Freed(http.StatusServiceUnavailable, "*")),
		"503 without Retry-After": unavailable("Other", Stored(http.StatusServiceUnavailable, "*")),
		// What was written in a transaction that is rolled back is not the response.
		"rolled back, a string": RolledBack(1, func(c Context, j *Journal) error {
			_ = j.InTx(c, Pay)
			return c.String(http.StatusPaymentRequired, "failed")
		}, Stored(http.StatusPaymentRequired, "failed")),
		"rolled back after early hints, JSON": RolledBack(1, func(c Context, j *Journal) error {
			_ = EarlyHints(c)
			_ = j.InTx(c, Pay)
			return c.JSON(http.StatusPaymentRequired, "failed")
		}, Stored(http.StatusPaymentRequired, `"failed"`+f.LineEnd)),
		"committed after early hints": RolledBack(0, func(c Context, j *Journal) error {
			_ = EarlyHints(c)
			return j.InTx(c, Pay)
		}, Stored(f.LateStatus, "paid")),
		"a status after early hints": {func(c Context) error {
			_ = EarlyHints(c)
			return c.NoContent(http.StatusCreated)
		}, nil, Stored(f.LateStatus, "")},
	}
}

// answer answers with the request's body, and whether it is a run.
func answer(c Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	if middleware.FromContext(c.Request().Context()).Key() != "" {
		body = append(body, ", run"...)
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

func unavailable(header string, want []Want) Row {
	return Row{func(c Context) error {
		c.Writer().Header().Set(header, "1")
		return c.Fail(http.StatusServiceUnavailable)
	}, []any{middleware.WithAtMostOnce(), middleware.WithNothingHappened(func(status int, h http.Header) bool {
		return status == http.StatusServiceUnavailable && h.Get("Retry-After") != ""
	})}, want}
}

// RolledBack is a row in which the first transactions fail.
func RolledBack(failures int, h func(Context, *Journal) error, want []Want) Row {
	j := &Journal{Failures: failures}
	return Row{func(c Context) error { return h(c, j) }, []any{middleware.WithJournal(j)}, want}
}
