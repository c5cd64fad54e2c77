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
	inFlight      = Want{Status: 409, Body: "*", Outcome: middleware.InFlight}
	notReplayable = Want{Status: 409, Body: "*", Outcome: middleware.NotReplayable}
	hijacked      = Want{Status: 201, Body: "paid", Outcome: middleware.NotStored}
	leftOpen      = Want{Status: 402, Body: "no cover", Outcome: middleware.Unknown, LeftOpen: "once, render"}
	kept          = Want{Status: 402, Body: "no cover", Outcome: middleware.NotStored, LeftOpen: "once, render"}
)

// Tests runs the tests of a package.
func (f Framework) Tests(t *testing.T) {
	for _, rows := range []map[string]Row{f.rows(), f.lateRows(), f.Rows} {
		for name, row := range rows {
			t.Run(name, func(t *testing.T) { f.run(t, row) })
		}
	}
	t.Run("same", f.same)
	t.Run("no route", f.noRoute)
}

// Requests without a route get the framework's own answer, and take no key. Mounted twice, it takes effect once.
func (f Framework) noRoute(t *testing.T) {
	s := f.NewSite(t)
	s.Router.Use(s.Once)
	s.Router.Add(http.MethodGet, "/payments", Pay)
	s.Protect(Pay)
	for path, want := range map[string]string{
		"/nowhere": f.NotFound, "/payments": f.NotAllowed, "/payments/42": "paid",
	} {
		for range 2 {
			a := s.Post(path, "k"+path, "1")
			if e := <-s.Events; a.Body != want || (e.Outcome == "freed") != (want != "paid") || s.runs > 1 {
				t.Errorf("%s: %q, outcome %s, want %q", path, a.Body, e.Outcome, want)
			}
		}
	}
}

func (f Framework) run(t *testing.T, row Row) {
	t.Helper()
	s := f.NewSite(t, row.Around...)
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
		if e.Outcome != w.Outcome || e.Pattern != route || (s.runs > ran) != !e.Handler.Start.IsZero() {
			t.Errorf("request %d: %d runs, and %+v, want %s", i, s.runs-ran, e, w.Outcome)
		}
		if w.LeftOpen != "" && (e.Status != 0 || e.Err == nil || !strings.Contains(e.Err.Error(), w.LeftOpen)) {
			t.Errorf("request %d: status %d and error %v of the Event", i, e.Status, e.Err)
		}
	}
}

// rows are what all frameworks have in common.
func (f Framework) rows() map[string]Row {
	silent := func(error, Context) {}
	shadow := middleware.WithShadow()
	panicked := Want{Status: 500, Body: f.Recovered, Outcome: middleware.Panicked}
	return map[string]Row{
		"another request": {Pay, nil, append(Stored(201, "paid"),
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
		"nothing happened": {func(c Context) error {
			return c.Fail(503)
		}, []any{middleware.WithAtMostOnce(), middleware.WithNothingHappened(func(status int, _ http.Header) bool {
			return status == 503
		})}, Freed(503, "*")},
	}
}

// lateRows are of answers after a transaction or after a 1xx status.
func (f Framework) lateRows() map[string]Row {
	return map[string]Row{
		// What was written in a transaction that is rolled back is not the response.
		"rolled back, a string": RolledBack(1, func(c Context, j *Journal) error {
			_ = j.InTx(c, Pay)
			return c.String(402, "failed")
		}, Stored(402, "failed")),
		"rolled back after a 103, JSON": RolledBack(1, func(c Context, j *Journal) error {
			_ = EarlyHints(c)
			_ = j.InTx(c, Pay)
			return c.JSON(402, "failed")
		}, Stored(402, `"failed"`+f.LineEnd)),
		"committed after a 103": RolledBack(0, func(c Context, j *Journal) error {
			_ = EarlyHints(c)
			return j.InTx(c, Pay)
		}, Stored(f.LateStatus, "paid")),
		"a status after a 103": {func(c Context) error {
			_ = EarlyHints(c)
			return c.NoContent(201)
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
	return c.String(200, string(body))
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

// RolledBack is a row in which the first transactions fail.
func RolledBack(failures int, h func(Context, *Journal) error, want []Want) Row {
	j := &Journal{Failures: failures}
	return Row{func(c Context) error { return h(c, j) }, []any{middleware.WithJournal(j)}, want}
}
