package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// What a Tee observes of a response, and what a handler gets of its body, is in internal/shadow.

// shadow serves h in shadow on a miniredis.
func shadow(t *testing.T, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	return serve(t, redistest.Mini(t), h, append(opts, middleware.WithShadow())...)
}

// wantShadow checks the status that the client got and what would have happened.
func (s *site) wantShadow(a answer, status int, outcome middleware.Outcome, would int) middleware.Event {
	s.t.Helper()
	e := s.want(a, status, outcome)
	if !e.Shadow || e.Status != would {
		s.t.Errorf("Event %+v, want Shadow and status %d", e, would)
	}
	if a.replayed() || a.problem() != "" || a.header.Get("X-Should-Retry") != "" {
		s.t.Errorf("the middleware answered: %v %s", a.header, a.body)
	}
	return e
}

// In shadow the Events have the outcomes and statuses that the middleware would have had, acting.
func TestShadowOutcomesAreThoseOfActing(t *testing.T) {
	t.Parallel()
	exec := func(r *http.Request) *middleware.Execution { return middleware.FromContext(r.Context()) }
	discard := func(w http.ResponseWriter, r *http.Request) { _ = exec(r).Discard() }
	for name, handle := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"401":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"500":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"refusal": func(w http.ResponseWriter, _ *http.Request) { refuse(w) },
		"broken":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") },
		"long":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 101)) },
		"cookie":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "a=b") },
		"cookie and 404": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "a=b")
			w.WriteHeader(404)
		},
		"Keep":              func(w http.ResponseWriter, r *http.Request) { exec(r).Keep(); w.WriteHeader(503) },
		"Discard":           discard,
		"Discard and Flush": func(w http.ResponseWriter, r *http.Request) { discard(w, r); w.(http.Flusher).Flush() },
		"Unknown":           func(_ http.ResponseWriter, r *http.Request) { exec(r).Unknown() },
		"Unknown and Flush": func(w http.ResponseWriter, r *http.Request) { exec(r).Unknown(); w.(http.Flusher).Flush() },
		"panic":             func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"Flush and panic":   func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); panic(http.ErrAbortHandler) },
		"WithStored panics": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599) },
	} {
		for optionName, opts := range map[string][]middleware.Option{
			"default": nil, "cookies": {middleware.WithCookies()}, "at most once": {middleware.WithAtMostOnce()},
			"nothing happened": {middleware.WithAtMostOnce(), middleware.WithNothingHappened(isRefusal)},
			"no 5xx":           {middleware.WithoutServerErrors()}, "statuses": {middleware.WithProblemStatus("in-flight", 503)},
		} {
			t.Run(name+", "+optionName, func(t *testing.T) {
				t.Parallel()
				opts := append(opts, middleware.WithMaxResponse(100), middleware.WithStored(func(status int) bool {
					if status == 599 {
						panic("secret")
					}
					return middleware.StoreDefault(status)
				}))
				acting, watching := outcomes(t, handle, opts...), outcomes(t, handle, append(opts, middleware.WithShadow())...)
				for i, want := range acting {
					got := watching[i]
					isSame := got.Status == want.Status || name == "WithStored panics" // there the response was sent
					if got.Outcome != want.Outcome || !isSame || (got.Err == nil) != (want.Err == nil) {
						t.Errorf("request %d: %+v; in shadow %+v", i+1, want, got)
					}
					if strings.Contains(fmt.Sprint(got.Err), "secret") {
						t.Errorf("the error shows what a function panicked with: %v", got.Err)
					}
				}
			})
		}
	}
}

// outcomes returns the Events of two equal requests.
func outcomes(t *testing.T, handle http.HandlerFunc, opts ...middleware.Option) (events []middleware.Event) {
	t.Helper()
	handler := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), headerKey,
		append(opts, middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) }))...)(handle)
	for range 2 {
		func() {
			defer func() { _ = recover() }()
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k1")
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	if len(events) != 2 {
		t.Fatalf("%d events", len(events))
	}
	return events
}

func TestShadowComparesWhatWouldBeReplayed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text    string
		status  int
		cookie  bool
		opts    []middleware.Option
		differs bool
	}{
		"the same":                  {"done", 201, false, nil, false},
		"another body":              {"gone", 201, false, nil, true},
		"another status":            {"done", 200, false, nil, true},
		"a cookie":                  {"done", 201, true, nil, true},
		"a cookie that is replayed": {"done", 201, true, []middleware.Option{middleware.WithCookies()}, false},
	} {
		n := 0
		s := shadow(t, func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 1 {
				w.WriteHeader(201)
				_, _ = io.WriteString(w, "done")
				return
			}
			if test.cookie {
				w.Header().Set("Set-Cookie", "a=b")
			}
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.text)
		}, test.opts...)
		s.wantShadow(s.send(), 201, middleware.Executed, 201)
		if e := s.wantShadow(s.send(), test.status, middleware.Replayed, 201); e.Differs != test.differs || e.Err != nil {
			t.Errorf("%s: Differs %v, %v", name, e.Differs, e.Err)
		}
	}
}

// A stored failure shows when the handler later succeeds: Differs, the status that would be replayed, and Err.
func TestShadowOverAStoredFailure(t *testing.T) {
	t.Parallel()
	status := http.StatusServiceUnavailable
	s := shadow(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }, middleware.WithAtMostOnce())
	s.wantShadow(s.send(), 503, middleware.Executed, 503)
	if e := s.wantShadow(s.send(), 503, middleware.Replayed, 503); e.Differs || e.Err != nil {
		t.Errorf("the same failure again: Differs %v, %v", e.Differs, e.Err)
	}
	status = http.StatusCreated
	e := s.wantShadow(s.send(), 201, middleware.Replayed, 503)
	if !e.Differs || !strings.Contains(fmt.Sprint(e.Err), "stored response of 500 or above") {
		t.Errorf("Differs %v, %v", e.Differs, e.Err)
	}
}

// Every request runs with its whole body, whatever the middleware would have answered.
func TestShadowNeverRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 1000)
	for name, test := range map[string]struct {
		key     keyfunc.Func
		edit    edit
		opts    []middleware.Option
		outcome middleware.Outcome
		would   int
		err     string
	}{
		"no key":    {nil, noKey, nil, middleware.Unprotected, 0, ""},
		"required":  {nil, noKey, []middleware.Option{middleware.WithRequired()}, middleware.MissingKey, 400, ""},
		"malformed": {nil, key(strings.Repeat("a", 256)), nil, middleware.InvalidKey, 400, "255"},
		"it panics": {func(*http.Request) (string, error) { panic("secret") }, key("a"), nil, middleware.KeyFailed, 500, "panicked"},
		"it reads":  {keyfunc.Body(), key("a"), nil, middleware.Executed, 201, ""},
		"it uses the body up": {func(r *http.Request) (string, error) {
			_, err := io.Copy(io.Discard, r.Body)
			return "k", err
		}, key("a"), nil, middleware.KeyFailed, 500, "used up"},
		"a fingerprint that panics": {nil, key("a"), []middleware.Option{
			middleware.WithFingerprint("x", func(*http.Request, []byte) []byte { panic("secret") }),
		}, middleware.KeyFailed, 500, "panicked"},
		"too old":       {nil, aged(2 * time.Hour), old(), middleware.ExpiredKey, 400, ""},
		"a long body":   {nil, body("text/plain", long), []middleware.Option{middleware.WithMaxBody(100)}, middleware.TooLarge, 413, ""},
		"one in chunks": {nil, func(r *http.Request) { body("text/plain", long)(r); r.ContentLength = -1 }, []middleware.Option{middleware.WithMaxBody(100)}, middleware.TooLarge, 413, ""},
		"an empty one":  {nil, func(r *http.Request) { body("text/plain", "")(r); r.ContentLength = -1 }, nil, middleware.Executed, 201, "may have read it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.key == nil {
				test.key = keyfunc.Standard(keyfunc.BasicUser())
			}
			s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), test.key, func(w http.ResponseWriter, r *http.Request) {
				got, _ := io.ReadAll(r.Body)
				w.WriteHeader(201)
				_, _ = w.Write(got)
			}, append(test.opts, middleware.WithShadow(), middleware.WithKeyEcho("X-Key", headerKey))...)
			r := s.request(test.edit)
			sent, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(sent)))
			a, err := s.try(r)
			e := s.wantShadow(a, 201, test.outcome, test.would)
			if a.body != string(sent) || err != nil || a.header.Get("X-Key") != "" || a.header.Get("Connection") == "close" {
				t.Errorf("%v, %d of %d bytes, %v", err, len(a.body), len(sent), a.header)
			}
			if got := fmt.Sprint(e.Err); test.err == "" && e.Err != nil || !strings.Contains(got, test.err) || strings.Contains(got, "secret") {
				t.Errorf("Err = %v, want %q in it", e.Err, test.err)
			}
			s.wantRuns(1)
			s.noEvent()
		})
	}
}

// A body of unknown length on HTTP/2 may be one half of a conversation.
func TestShadowDoesNotReadAConversation(t *testing.T) {
	t.Parallel()
	var events []middleware.Event
	for _, k := range []keyfunc.Func{headerKey, keyfunc.JSON("/id")} {
		handler := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), k, middleware.WithShadow(),
			middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) }))
		sent, send := io.Pipe() // from which nothing can be read before the handler runs
		r := httptest.NewRequest(http.MethodPost, "/", sent)
		r.ProtoMajor, r.ContentLength = 2, -1
		r.Header.Set("Idempotency-Key", "k")
		handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			go func() { _, _ = io.WriteString(send, "hello") }()
			if got, err := io.ReadAll(io.LimitReader(r.Body, 5)); string(got) != "hello" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, e := range events {
		if e.Outcome != middleware.Unprotected || e.Err == nil || !e.Shadow {
			t.Errorf("%+v", e)
		}
	}
}

// A Redis that is silent costs one request the time for one operation, and those behind it nothing. A closed Locker costs
// nothing.
func TestShadowWithoutRedis(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
	locker := newLocker(t, proxy.Client(t), lock.WithOpTimeout(100*time.Millisecond)) // the time is the fault
	s := serveOn(t, locker, payOnce(), middleware.WithShadow(), middleware.WithAtMostOnce())
	open := serveOn(t, locker, payOnce(), middleware.WithShadow(), middleware.WithFailOpen())
	proxy.BlackHole()
	if e := open.wantShadow(open.send(), 201, middleware.Unprotected, 0); e.Err == nil {
		t.Error("the Event has no error")
	}
	paused := false
	for range 20 {
		e := s.wantShadow(s.send(), 201, middleware.StoreUnavailable, 503)
		paused = paused || e.Claim.Start.IsZero() && e.Err != nil
	}
	if !paused {
		t.Error("each request asked Redis")
	}
	proxy.Heal()
}

// A response whose storing hangs goes out all the same, whole, and is stored later.
func TestShadowDoesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Mini(t).Addr())
	s := serveOn(t, newLocker(t, proxy.Client(t), lock.WithOpTimeout(5*time.Second)), payOnce(), middleware.WithShadow()) // the time is the fault
	held := proxy.HoldRequest(scriptCommands)
	e := s.wantShadow(s.send(), 201, middleware.NotStored, 201)
	if !e.Pending || !errors.Is(e.Err, lock.ErrPending) {
		t.Errorf("%+v, want it pending", e)
	}
	held.Lift()
	eventually(t, "the value to be stored", func() bool {
		info, err := s.locker.Inspect(t.Context(), e.Key)
		return err == nil && info.State == lock.Settled
	})
}

// An instance that acts sees nothing of one in shadow, and the reverse. Nothing of a response is in Redis.
func TestShadowHasKeysOfItsOwn(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		h := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Secret", "classified")
			_, _ = io.WriteString(w, "classified")
		}
		watching := serve(t, b, h, middleware.WithShadow(), middleware.WithRetention(time.Minute))
		watching.wantShadow(watching.send(), 200, middleware.Executed, 200)
		if value, _ := b.Raw(t, b.Keys(t)[0]); strings.Contains(value, "classified") || strings.Contains(value, "amount") {
			t.Errorf("stored: %q", value)
		}
		acting := serve(t, b, h)
		acting.want(acting.send(), 200, middleware.Executed)
		acting.want(acting.send(), 200, middleware.Replayed)
		acting.want(acting.send(key("k2")), 200, middleware.Executed)
		watching.wantShadow(watching.send(key("k2")), 200, middleware.Executed, 200)
		b.Elapse(t, time.Minute)
		watching.wantShadow(watching.send(), 200, middleware.Executed, 200)
	})
}

// The handler's context ends with the request's: neither WithMaxDuration nor a lost lease ends it. A duplicate does not
// wait. Each run has another key for what is behind it.
func TestShadowRunsAtOnce(t *testing.T) {
	t.Parallel()
	keys, g := make(chan string, 10), newGate()
	s := serveOn(t, newLocker(t, redistest.Mini(t).Client(t), lock.WithFencing()), func(w http.ResponseWriter, r *http.Request) {
		run := middleware.FromContext(r.Context())
		_, hasDeadline := r.Context().Deadline()
		g.pass()
		if hasDeadline || r.Context().Err() != nil || run.Fence() != 0 {
			t.Errorf("deadline %t, %v, fence %d", hasDeadline, r.Context().Err(), run.Fence())
		}
		keys <- run.Key()
	}, middleware.WithShadow(), middleware.WithMaxDuration(time.Nanosecond), middleware.WithWait(time.Hour))
	first := s.inBackground(g)
	second := s.inBackground(g)
	close(g.open)
	<-first
	<-second
	events := map[middleware.Outcome]middleware.Event{}
	for range 2 {
		e := s.event()
		events[e.Outcome] = e
	}
	e := events[middleware.Executed]
	if !strings.Contains(fmt.Sprint(e.Err), "WithMaxDuration") || events[middleware.InFlight].Status != 409 {
		t.Errorf("%+v", events)
	}
	if a, b := <-keys, <-keys; a == b || a == "" || b == "" || a == e.Key || b == e.Key {
		t.Errorf("keys %q and %q, Event %q", a, b, e.Key)
	}
}

// A client that leaves ends the handler's context. Its retry would have been a replay of what nobody knows. Only what an
// outer middleware answers is not taken for the handler's.
func TestShadowClientLeaves(t *testing.T) {
	t.Parallel()
	why := errors.New("rendered outside")
	for _, open := range []error{nil, why} {
		ctx, leave := context.WithCancel(t.Context())
		var events []middleware.Event
		once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), headerKey, middleware.WithShadow(),
			middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) }))
		w := &openWriter{ResponseWriter: httptest.NewRecorder()}
		handler := once(http.HandlerFunc(func(w2 http.ResponseWriter, r *http.Request) {
			leave()
			if w.why = open; open == nil && r.Context().Err() != nil {
				w2.WriteHeader(http.StatusInternalServerError)
			}
		}))
		for _, ctx := range []context.Context{ctx, t.Context()} {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			handler.ServeHTTP(w, r)
		}
		first, again := events[0], events[1]
		switch {
		case open == nil && (first.Outcome != middleware.Executed || again.Outcome != middleware.Replayed || again.Differs):
			t.Errorf("%+v, then %+v", first, again)
		case open != nil && (first.Outcome != middleware.Unknown || !errors.Is(first.Err, why)):
			t.Errorf("%+v", first)
		}
	}
}

func TestShadowNested(t *testing.T) {
	t.Parallel()
	standard := keyfunc.Standard(keyfunc.BasicUser())
	byUser := keyfunc.Compose(headerKey, keyfunc.Anonymous())
	for name, test := range map[string]struct {
		outer, inner bool // in shadow
		outerKey     keyfunc.Func
		discards     bool
		runs         int64 // of two requests
	}{
		"mounted twice":                {true, true, standard, false, 2},
		"the outer one acts":           {false, true, standard, false, 1},
		"the inner one acts":           {true, false, standard, false, 1},
		"the outer one acts, by user":  {false, true, byUser, false, 1},
		"the handler speaks to it":     {false, true, byUser, true, 2},
		"the handler speaks to it too": {true, false, byUser, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker := newLocker(t, redistest.Mini(t).Client(t))
			opts := map[bool][]middleware.Option{true: {middleware.WithShadow()}}
			s := serveKeyed(t, locker, standard, func(w http.ResponseWriter, r *http.Request) {
				if test.discards {
					_ = middleware.FromContext(r.Context()).Discard()
				}
			}, opts[test.inner]...)
			s.outer = middleware.Idempotency(locker, test.outerKey, opts[test.outer]...)
			s.send()
			if a := s.send(); a.status != 200 || a.replayed() == (test.runs == 2) {
				t.Errorf("%d %s, replayed %t", a.status, a.body, a.replayed())
			}
			s.wantRuns(test.runs)
		})
	}
}

// What a mux below the middleware writes into the request, the middlewares around it see, and net/http gets its own body
// back.
func TestShadowLeavesTheRequestAsItWas(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments/{id}", func(_ http.ResponseWriter, r *http.Request) { _ = r.ParseMultipartForm(1) })
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), headerKey, middleware.WithShadow())
	r := httptest.NewRequest(http.MethodPost, "/payments/7", strings.NewReader("body"))
	r.Header.Set("Idempotency-Key", "k")
	original := r.Body
	once(mux).ServeHTTP(httptest.NewRecorder(), r)
	if want := "POST /payments/{id}"; r.Pattern != want || r.Body != original {
		t.Errorf("Pattern %q, want %q; the original body: %t", r.Pattern, want, r.Body == original)
	}
}
