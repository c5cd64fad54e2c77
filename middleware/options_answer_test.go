package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// A problem has the status of WithProblemStatus, in its document and in the Event. The others keep theirs.
func TestProblemStatus(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		opts := []middleware.Option{
			middleware.WithRequired(), middleware.WithProblemStatus("key-reused", 409), middleware.WithProblemStatus("key-missing", 428),
		}
		for name, shadow := range map[string]bool{"acting": false, "in shadow": true} {
			opts := opts
			if shadow {
				opts = append(slices.Clip(opts), middleware.WithShadow())
			}
			s := serve(t, b, payOnce(), opts...)
			s.want(s.send(), http.StatusCreated, middleware.Executed)
			for want, edit := range map[int]edit{409: body("application/json", "{}"), 428: noKey, 400: key(`"`)} {
				w := httptest.NewRecorder() // s.send compares with the table
				s.handler.ServeHTTP(w, s.request(edit))
				if e := s.event(); e.Status != want {
					t.Errorf("%s: %s has %d, want %d", name, e.Outcome, e.Status, want)
				}
				if document := fmt.Sprintf(`"status":%d`, want); !shadow && (w.Code != want || !strings.Contains(w.Body.String(), document)) {
					t.Errorf("got %d (%s), want %d", w.Code, w.Body, want)
				}
			}
		}
	})
}

// The echo is the key of the request that is answered, in the handler's response, a replay and a problem. A malformed key
// is not echoed.
//
// fault: a replay to a client that spelled the key in another way -> it has that client's key, not the stored one
func TestKeyEcho(t *testing.T) {
	const echoed = "a-key-to-echo" // long enough not to be in what is stored by chance
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce(), middleware.WithRequired(),
			middleware.WithKeyEcho("idempotency-key", keyfunc.Header("Idempotency-Key")))
		for _, c := range []struct {
			name   string
			edits  []edit
			status int
			echo   []string
		}{
			{"the first", []edit{key(echoed)}, 201, []string{echoed}},
			{"a replay", []edit{key(`"` + echoed + `"`)}, 201, []string{echoed}},
			{"a replay, without quotes", []edit{key(echoed)}, 201, []string{echoed}},
			{"reused", []edit{key(echoed), body("application/json", "{}")}, 422, []string{echoed}},
			{"no user", []edit{key(echoed), header("Authorization", "x")}, 401, []string{echoed}},
			{"too large", []edit{key(echoed), body("text/plain", strings.Repeat("x", 1<<20+1))}, 413, []string{echoed}},
			{"malformed", []edit{key(`"` + echoed)}, 400, nil},
			{"two", []edit{func(r *http.Request) { r.Header["Idempotency-Key"] = []string{echoed, echoed} }}, 400, nil},
			{"missing", []edit{noKey}, 400, nil},
			{"another method", []edit{key(echoed), method(http.MethodPut)}, 201, nil},
		} {
			a := s.send(c.edits...)
			if got := a.header["Idempotency-Key"]; a.status != c.status || !slices.Equal(got, c.echo) {
				t.Errorf("%s: got %d, %q, want %d, %q", c.name, a.status, got, c.status, c.echo)
			}
		}
		for _, name := range b.Keys(t) {
			if stored := b.Client(t).Get(t.Context(), name).Val(); stored == "" || strings.Contains(stored, echoed) {
				t.Errorf("the key is stored: %q", stored)
			}
		}
	})
}

// A Func of the user may return what is no field value. It is not echoed, nor is its key when it fails.
func TestKeyEchoOfAnything(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	for _, c := range []struct {
		key  string
		err  error
		want []string
	}{
		{"a b", nil, []string{"a b"}}, {"a\r\nSet-Cookie: x", nil, nil}, {"é", nil, nil}, {"", nil, nil}, {"a", errors.New("failed"), nil},
	} {
		part := func(*http.Request) (string, error) { return c.key, c.err }
		s := serve(t, b, payOnce(), middleware.WithKeyEcho("X-Key", part))
		if got := s.send().header["X-Key"]; !slices.Equal(got, c.want) {
			t.Errorf("%q, %v: echoed as %q, want %q", c.key, c.err, got, c.want)
		}
	}
	shadow := serve(t, b, payOnce(), middleware.WithShadow(), middleware.WithKeyEcho("X-Key", keyfunc.Header("Idempotency-Key")))
	if got := shadow.send().header["X-Key"]; got != nil {
		t.Errorf("in shadow: %q", got)
	}
}

func TestReplayHeader(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), payOnce(), middleware.WithReplayHeader("x-cache"))
	first, again := s.send(), s.send()
	s.want(first, http.StatusCreated, middleware.Executed)
	s.want(again, http.StatusCreated, middleware.Replayed)
	if first.header["X-Cache"] != nil || again.header.Get("X-Cache") != "true" || again.replayed() {
		t.Errorf("got %v and %v", first.header, again.header)
	}
}

// A set of options is its options. What follows it overrides it.
func TestOptions(t *testing.T) {
	t.Parallel()
	set := middleware.Options(middleware.WithRequired(), middleware.WithMethods(http.MethodPut), middleware.WithMethods(http.MethodPost))
	b := redistest.Mini(t)
	s := serve(t, b, payOnce(), set)
	s.want(s.send(noKey), http.StatusBadRequest, middleware.MissingKey)
	s = serve(t, b, payOnce(), set, middleware.WithMethods(http.MethodPatch))
	if a := s.send(noKey); a.status != http.StatusCreated {
		t.Errorf("the set was not overridden: %d", a.status)
	}
}

// Wrong options panic when they are made, or combined, and the text names the option.
func TestAnswerOptionsPanic(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	with := func(opts ...middleware.Option) { middleware.New(locker, keyfunc.Anonymous(), opts...) }
	for want, f := range map[string]func(){
		`middleware.WithProblemStatus: there is no problem of the type "reused"`: func() { middleware.WithProblemStatus("reused", 409) },
		`middleware.WithProblemStatus: there is no problem of the type ""`:       func() { middleware.WithProblemStatus("", 409) },
		"middleware.WithProblemStatus: 200 is not":                               func() { middleware.WithProblemStatus("key-reused", 200) },
		`middleware.WithKeyEcho: "a b" is not`:                                   func() { middleware.WithKeyEcho("a b", keyfunc.Anonymous()) },
		"middleware.WithKeyEcho: part is nil":                                    func() { middleware.WithKeyEcho("X-Key", nil) },
		`middleware.WithReplayHeader: "" is not`:                                 func() { middleware.WithReplayHeader("") },
		"middleware.Options: option 2 is nil":                                    func() { middleware.Options(middleware.WithRequired(), nil) },
		"middleware.WithAtMostOnce: cannot be kept with WithoutServerErrors, which profile.ACP sets": func() {
			with(middleware.WithAtMostOnce(), middleware.WithoutServerErrors())
		},
		"middleware.WithJournal: an intent journal cannot be kept with WithoutServerErrors": func() {
			with(middleware.WithoutServerErrors(), middleware.WithJournal(newJournal(true)))
		},
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
	with(middleware.WithoutServerErrors(), middleware.WithJournal(newJournal(false)))
}

// With WithoutServerErrors a retry after a 5xx runs, whatever the handler has called or sent.
//
// fault: a 5xx after Keep, a 5xx that was flushed, one that is too long, one that breaks off -> the retry runs
func TestWithoutServerErrors(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			answer func(w http.ResponseWriter, r *http.Request)
			isErr  bool
		}{
			"an answer": {func(http.ResponseWriter, *http.Request) {}, false},
			"Keep":      {func(_ http.ResponseWriter, r *http.Request) { middleware.FromContext(r.Context()).Keep() }, true},
			"flushed":   {func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, false},
			"too long":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 101)) }, false},
			"Discard":   {func(_ http.ResponseWriter, r *http.Request) { _ = middleware.FromContext(r.Context()).Discard() }, false},
		} {
			t.Run(name, func(t *testing.T) {
				failed := false
				s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
					if failed {
						w.WriteHeader(http.StatusCreated)
						return
					}
					failed = true
					w.WriteHeader(http.StatusServiceUnavailable)
					c.answer(w, r)
				}, middleware.WithoutServerErrors(), middleware.WithStored(middleware.StoreAll), middleware.WithMaxResponse(100))
				e := s.want(s.send(key(`"`+name+`"`)), http.StatusServiceUnavailable, middleware.Freed)
				if (e.Err != nil) != c.isErr {
					t.Errorf("the Event's error: %v", e.Err)
				}
				s.want(s.send(key(`"`+name+`"`)), http.StatusCreated, middleware.Executed)
				s.want(s.send(key(`"`+name+`"`)), http.StatusCreated, middleware.Replayed)
			})
		}
	})
}

// A transaction whose response is a 5xx is rolled back. The handler's own answer is sent, and a retry runs.
//
// fault: the handler writes 500 in InTx and returns nil -> no effect is committed, and the retry has one
func TestWithoutServerErrorsInTx(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		j := newJournal(false)
		status := http.StatusInternalServerError
		s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
			err := j.inTx(r.Context(), func() error {
				w.Header().Set("X-Inside", "1")
				w.WriteHeader(status)
				return nil
			})
			if err != nil {
				if !strings.Contains(err.Error(), "WithoutServerErrors") {
					t.Errorf("InTx returned %v", err)
				}
				w.WriteHeader(http.StatusBadGateway)
			}
		}, middleware.WithoutServerErrors())
		a := s.send()
		s.want(a, http.StatusBadGateway, middleware.Freed)
		if a.header.Get("X-Inside") != "" || j.effects != 0 {
			t.Errorf("%v, %d effects, want neither", a.header, j.effects)
		}
		status = http.StatusCreated
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		if j.effects != 1 {
			t.Errorf("%d effects, want 1", j.effects)
		}
	})
}
