package middleware_test

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// isRefusal is the f of WithNothingHappened that its doc comment shows.
func isRefusal(status int, header http.Header) bool {
	return status == http.StatusServiceUnavailable && header.Get("Retry-After") != ""
}

// refuse answers what isRefusal is true for.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
}

// A response for which WithNothingHappened says so frees the key in every mode, unless the run has said or done something that
// speaks against it. Then it counts as without the option.
//
// fault: the run's time is over before the handler answers. Expected: it may have done something, so its refusal is stored.
func TestWithNothingHappened(t *testing.T) {
	t.Parallel()
	exec := func(r *http.Request) *middleware.Execution { return middleware.FromContext(r.Context()) }
	closed := newLocker(t, redistest.Mini(t).Client(t))
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	inside := middleware.Idempotency(closed, keyfunc.Anonymous())(http.NotFoundHandler())
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		first  middleware.Outcome // where a 5xx is stored
		limit  time.Duration      // of a run; 0: long
	}{
		"refusal": {func(w http.ResponseWriter, _ *http.Request) { refuse(w) }, middleware.Freed, 0},
		"header after the status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Header().Set("Retry-After", "1")
		}, middleware.Executed, 0},
		"header removed after the status": {func(w http.ResponseWriter, _ *http.Request) { refuse(w); w.Header().Del("Retry-After") }, middleware.Freed, 0},
		"Keep":                            {func(w http.ResponseWriter, r *http.Request) { exec(r).Keep(); refuse(w) }, middleware.Executed, 0},
		"Unknown":                         {func(w http.ResponseWriter, r *http.Request) { exec(r).Unknown(); refuse(w) }, middleware.Unknown, 0},
		"Flush":                           {func(w http.ResponseWriter, _ *http.Request) { refuse(w); w.(http.Flusher).Flush() }, middleware.Executed, 0},
		"too late":                        {func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); refuse(w) }, middleware.Executed, 20 * time.Millisecond},
		"of a middleware inside":          {inside.ServeHTTP, middleware.Unknown, 0},
	} {
		for mode, opts := range map[string]middleware.Option{
			"at most once": middleware.WithAtMostOnce(), "intent": middleware.WithJournal(newJournal(true)),
		} {
			s := serve(t, redistest.Mini(t), test.handle, opts, middleware.WithNothingHappened(isRefusal), middleware.WithMaxDuration(cmp.Or(test.limit, time.Minute)))
			a := s.send()
			if e := s.event(); a.status != http.StatusServiceUnavailable || e.Outcome != test.first {
				t.Errorf("%s, %s: %d, %s (%v), want %s", name, mode, a.status, e.Outcome, e.Err, test.first)
			}
			s.send()
			if e := s.event(); (e.Outcome == middleware.Freed) != (test.first == middleware.Freed) {
				t.Errorf("%s, %s: then %s (%v)", name, mode, e.Outcome, e.Err)
			}
		}
	}
}

// In a transaction such a response, and a 5xx with WithoutServerErrors, roll back: what the handler then answers counts. After
// Keep or Unknown only a 5xx does.
func TestRolledBackByTheResponse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opt     middleware.Option
		say     func(*middleware.Execution)
		why     string // in the error of InTx; empty if it is committed
		outcome middleware.Outcome
	}{
		"WithNothingHappened":          {middleware.WithNothingHappened(isRefusal), func(*middleware.Execution) {}, "WithNothingHappened", middleware.Freed},
		"WithNothingHappened, Keep":    {middleware.WithNothingHappened(isRefusal), (*middleware.Execution).Keep, "", middleware.Executed},
		"WithNothingHappened, Unknown": {middleware.WithNothingHappened(isRefusal), (*middleware.Execution).Unknown, "", middleware.Executed},
		"WithoutServerErrors":          {middleware.WithoutServerErrors(), func(*middleware.Execution) {}, "WithoutServerErrors", middleware.Freed},
		"WithoutServerErrors, Keep":    {middleware.WithoutServerErrors(), (*middleware.Execution).Keep, "WithoutServerErrors", middleware.Freed},
		"neither":                      {middleware.WithRequired(), func(*middleware.Execution) {}, "", middleware.Executed},
	} {
		j := newJournal(false)
		s, _ := journaled(t, redistest.Mini(t), j, func(w http.ResponseWriter, r *http.Request) {
			test.say(middleware.FromContext(r.Context()))
			err := j.inTx(r.Context(), func() error { w.Header().Set("X-Inside", "1"); refuse(w); return nil })
			if (err != nil) != (test.why != "") || err != nil && !strings.Contains(err.Error(), test.why) {
				t.Errorf("%s: InTx returned %v", name, err)
			}
			if err != nil {
				refuse(w)
			}
		}, test.opt)
		a := s.send()
		if s.want(a, http.StatusServiceUnavailable, test.outcome); (a.header.Get("X-Inside") == "") != (test.why != "") {
			t.Errorf("%s: %v", name, a.header)
		}
		if n := map[bool]int{true: 1}[test.why == ""]; true {
			j.want(t, n, n)
		}
	}
}

// A 5xx that the handler gives outside of its transaction, which was rolled back, is kept where the rule or Keep says so: by
// WithStored, with an intent journal, and after Keep. With WithoutServerErrors it is not. Only without any transaction the Event
// says that the journal protects nothing.
func TestKeptFailureAfterARollback(t *testing.T) {
	t.Parallel()
	keep := (*middleware.Execution).Keep
	nothing := func(*middleware.Execution) {}
	for name, test := range map[string]struct {
		intent bool
		noTx   bool
		say    func(*middleware.Execution)
		opts   []middleware.Option
		want   middleware.Outcome
	}{
		"by default":                {false, false, nothing, nil, middleware.Freed},
		"Keep":                      {false, false, keep, nil, middleware.Executed},
		"Keep, no transaction":      {false, true, keep, nil, middleware.Executed},
		"WithStored":                {false, false, nothing, []middleware.Option{middleware.WithStored(middleware.StoreAll)}, middleware.Executed},
		"intent":                    {true, false, nothing, nil, middleware.Executed},
		"intent, no transaction":    {true, true, nothing, nil, middleware.Executed},
		"WithoutServerErrors, Keep": {false, false, keep, []middleware.Option{middleware.WithoutServerErrors()}, middleware.Freed},
	} {
		j := newJournal(test.intent)
		s, _ := journaled(t, redistest.Mini(t), j, func(w http.ResponseWriter, r *http.Request) {
			test.say(middleware.FromContext(r.Context()))
			if !test.noTx {
				if err := j.inTx(r.Context(), func() error { _ = created(w); return errDown }); err != errDown {
					t.Errorf("%s: InTx returned %v", name, err)
				}
			}
			w.WriteHeader(http.StatusBadGateway)
		}, test.opts...)
		a := s.send()
		e := s.want(a, http.StatusBadGateway, test.want)
		if isOutside := errors.Is(e.Err, run.ErrOutsideTx); a.body != "" || isOutside != (test.noTx && !test.intent) {
			t.Errorf("%s: %q, error %v", name, a.body, e.Err)
		}
		rows := map[bool]int{true: 1}[test.want == middleware.Executed]
		j.want(t, 0, rows)
		if test.want == middleware.Executed {
			s.want(s.send(), http.StatusBadGateway, middleware.Replayed)
			s.wantRuns(1)
		}
	}
}
