package middleware_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Wrong options panic when they are made, or combined, and the text names the option.
func TestWrongConfigurationPanics(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	locker, other, standard := lock.New(client, "test"), lock.New(client, "test2"), keyfunc.Standard(keyfunc.Anonymous())
	with := func(opts ...middleware.Option) func() {
		return func() { middleware.Idempotency(locker, standard, opts...) }
	}
	intent, transactional := middleware.WithJournal(newJournal(true)), middleware.WithJournal(newJournal(false))
	const day = 24 * time.Hour
	for want, f := range map[string]func(){
		"middleware.Idempotency: the locker is nil":                     func() { middleware.Idempotency(nil, standard) },
		"middleware.Idempotency: key is nil":                            func() { middleware.Idempotency(locker, nil) },
		"middleware.Idempotency: option 2 is nil":                       with(middleware.WithRequired(), nil),
		"middleware.New: the locker is nil":                             func() { middleware.New(nil, standard) },
		"middleware.New: option 1 is nil":                               func() { middleware.New(locker, standard, nil) },
		"middleware.WithMethods: no":                                    func() { middleware.WithMethods() },
		"middleware.WithMethods: empty":                                 func() { middleware.WithMethods("PUT", "") },
		"middleware.WithRetention: 999µs":                               func() { middleware.WithRetention(999 * time.Microsecond) },
		"middleware.WithStored":                                         func() { middleware.WithStored(nil) },
		"middleware.WithNothingHappened":                                func() { middleware.WithNothingHappened(nil) },
		"middleware.WithMaxDuration: 0s":                                func() { middleware.WithMaxDuration(0) },
		"middleware.WithMaxBody: -1":                                    func() { middleware.WithMaxBody(-1) },
		"middleware.WithMaxResponse: -1":                                func() { middleware.WithMaxResponse(-1) },
		"middleware.WithFingerprint: f":                                 func() { middleware.WithFingerprint("name", nil) },
		"middleware.WithFingerprint: name":                              func() { middleware.WithFingerprint("", func(*http.Request, []byte) []byte { return nil }) },
		`middleware.WithJSONFingerprint: `:                              func() { middleware.WithJSONFingerprint("/a", "sent_at") },
		"middleware.WithObserver":                                       func() { middleware.WithObserver(nil) },
		"middleware.WithTraceparent: f is nil":                          func() { middleware.WithTraceparent(nil) },
		"middleware.WithProblem":                                        func() { middleware.WithProblem(nil) },
		"middleware.WithWait: -1":                                       func() { middleware.WithWait(-1) },
		"middleware.WithWait: [0]":                                      func() { middleware.WithWait(0, 0) },
		"middleware.WithWait: [1 2]":                                    func() { middleware.WithWait(0, 1, 2) },
		"middleware.WithKeyAge: 0s":                                     func() { middleware.WithKeyAge(0, headerKey) },
		"middleware.WithKeyAge: part":                                   func() { middleware.WithKeyAge(time.Hour, nil) },
		"middleware.WithKeyAge: 24h0m0.000000001s is more":              with(middleware.WithKeyAge(day+1, headerKey)),
		"middleware.WithKeyAge: 1h0m0s is more":                         with(middleware.WithKeyAge(time.Hour, headerKey), middleware.WithRetention(time.Minute)),
		"middleware.WithEncryption: no key":                             func() { middleware.WithEncryption() },
		"middleware.WithEncryption: key 2 has 31 bytes":                 func() { middleware.WithEncryption(master(1), master(2)[1:]) },
		"middleware.WithPlaintextReads: ":                               with(middleware.WithPlaintextReads()),
		"middleware.WithCompression: -1 ":                               func() { middleware.WithCompression(-1) },
		`middleware.WithProblemStatus: there is no problem of the type`: func() { middleware.WithProblemStatus("reused", 409) },
		"middleware.WithProblemStatus: 399 is not":                      func() { middleware.WithProblemStatus("key-reused", 399) },
		"middleware.WithProblemStatus: 600 is not":                      func() { middleware.WithProblemStatus("key-reused", 600) },
		`middleware.WithKeyEcho: "a b" is not`:                          func() { middleware.WithKeyEcho("a b", headerKey) },
		"middleware.WithKeyEcho: part is nil":                           func() { middleware.WithKeyEcho("X-Key", nil) },
		`middleware.WithReplayHeader: "" is not`:                        func() { middleware.WithReplayHeader("") },
		"middleware.Options: option 2 is nil":                           func() { middleware.Options(middleware.WithRequired(), nil) },
		"middleware.WithShadow: ":                                       with(middleware.WithShadow(), transactional),
		"middleware.WithJournal: the journal":                           func() { middleware.WithJournal(nil) },
		"middleware.WithJournal: cannot":                                with(intent, middleware.WithFailOpen()),
		"middleware.WithJournal: ":                                      func() { middleware.Idempotency(other, standard, intent) },
		"middleware.WithAtMostOnce: cannot be kept with WithFailOpen":   with(middleware.WithAtMostOnce(), middleware.WithFailOpen()),
		"middleware.WithAtMostOnce: cannot hold a key for":              with(middleware.WithAtMostOnce(), middleware.WithRetention(11*365*day)),
		"middleware.WithAtMostOnce: cannot be kept with WithoutServer":  with(middleware.WithAtMostOnce(), middleware.WithoutServerErrors()),
		"middleware.WithJournal: an intent journal cannot":              with(middleware.WithoutServerErrors(), intent),
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, want) {
					t.Errorf("panic %q, want one that begins with %q", got, want)
				}
			}()
			f()
		}()
	}
	with(middleware.WithoutServerErrors(), transactional)()
	with(middleware.WithPlaintextReads(), middleware.WithEncryption(master(1)))() // in whatever order they are given
	with(middleware.WithKeyAge(day, headerKey))()
}

// A set of options is its options. What follows it overrides it. A problem has the status of WithProblemStatus in its document
// and in the Event.
func TestOptions(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	set := middleware.Options(middleware.WithRequired(), middleware.WithProblemStatus("key-missing", 409), middleware.WithReplayHeader("x-cache"))
	s := serve(t, b, payOnce(), set, middleware.WithProblemStatus("key-missing", 428))
	w := httptest.NewRecorder() // s.send compares with the table
	s.handler.ServeHTTP(w, s.request(noKey))
	if e := s.event(); e.Status != 428 || w.Code != 428 || !strings.Contains(w.Body.String(), `"status":428`) {
		t.Errorf("%d %s, %+v", w.Code, w.Body, e)
	}
	first, again := s.send(), s.send()
	if first.header["X-Cache"] != nil || again.header.Get("X-Cache") != "true" || again.replayed() {
		t.Errorf("got %v and %v", first.header, again.header)
	}
}

// The echo is the key of the request that is answered, in the handler's response, a replay and a problem. A malformed key
// is not echoed, nor what is no field value.
//
// fault: a replay to a client that spelled the key in another way -> it has that client's key, not the stored one
func TestKeyEcho(t *testing.T) {
	t.Parallel()
	const echoed = "a-key-to-echo" // long enough not to be in what is stored by chance
	b := redistest.Mini(t)
	s := serve(t, b, payOnce(), middleware.WithRequired(), middleware.WithKeyEcho("idempotency-key", headerKey))
	for _, c := range []struct {
		name   string
		edits  []edit
		status int
		echo   []string
	}{
		{"the first", []edit{key(echoed)}, 201, []string{echoed}},
		{"a replay", []edit{key(`"` + echoed + `"`)}, 201, []string{echoed}},
		{"reused", []edit{key(echoed), body("application/json", "{}")}, 422, []string{echoed}},
		{"no user", []edit{key(echoed), header("Authorization", "x")}, 401, []string{echoed}},
		{"malformed", []edit{key(`"` + echoed)}, 400, nil},
		{"missing", []edit{noKey}, 400, nil},
		{"another method", []edit{key(echoed), method(http.MethodPut)}, 201, nil},
	} {
		a := s.send(c.edits...)
		if got := a.header["Idempotency-Key"]; a.status != c.status || !slices.Equal(got, c.echo) {
			t.Errorf("%s: got %d, %q, want %d, %q", c.name, a.status, got, c.status, c.echo)
		}
	}
	for _, name := range b.Keys(t) {
		if stored, _ := b.Raw(t, name); stored == "" || strings.Contains(stored, echoed) {
			t.Errorf("the key is stored: %q", stored)
		}
	}
	for _, c := range []struct {
		key  string
		err  error
		want []string
	}{
		{"a b~", nil, []string{"a b~"}}, {"a\r\nSet-Cookie: x", nil, nil}, {"é", nil, nil}, {"\x7f", nil, nil}, {"", nil, nil}, {"a", errors.New("failed"), nil},
	} {
		s := serve(t, b, payOnce(), middleware.WithKeyEcho("X-Key", func(*http.Request) (string, error) { return c.key, c.err }))
		if got := s.send().header["X-Key"]; !slices.Equal(got, c.want) {
			t.Errorf("%q, %v: echoed as %q, want %q", c.key, c.err, got, c.want)
		}
	}
}

// With WithoutServerErrors a retry after a 5xx runs, whatever the handler has called or sent.
//
// fault: a 5xx after Keep, a 5xx that was flushed, one that is too long, one that breaks off -> the retry runs
func TestWithoutServerErrors(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		isErr  bool
	}{
		"an answer": {func(http.ResponseWriter, *http.Request) {}, false},
		"Keep":      {func(_ http.ResponseWriter, r *http.Request) { middleware.FromContext(r.Context()).Keep() }, true},
		"flushed":   {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, false},
		"too long":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 101)) }, false},
	} {
		failed := false
		b.FlushAll(t)
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			if failed {
				w.WriteHeader(http.StatusCreated)
				return
			}
			failed = true
			w.WriteHeader(http.StatusServiceUnavailable)
			test.answer(w, r)
		}, middleware.WithoutServerErrors(), middleware.WithStored(middleware.StoreAll), middleware.WithMaxResponse(100))
		if e := s.want(s.send(), http.StatusServiceUnavailable, middleware.Freed); (e.Err != nil) != test.isErr {
			t.Errorf("%s: the Event's error: %v", name, e.Err)
		}
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
	}
}

// Which responses are stored is decided by their status.
//
// conformance: 19
func TestWhichResponsesAreStored(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 201, 204, 299, 303, 304, 400, 402, 409, 410, 411, 413, 414, 416, 417, 422, 424, 426, 431, 451, 499} {
		if !middleware.StoreDefault(status) {
			t.Errorf("%d is not stored", status)
		}
	}
	for _, status := range []int{401, 403, 404, 405, 408, 412, 415, 423, 425, 428, 429, 500, 501, 502, 503, 504, 599} {
		if middleware.StoreDefault(status) || !middleware.StoreAll(status) {
			t.Errorf("%d is stored by default, or not by StoreAll", status)
		}
	}
	custom := middleware.WithStored(func(status int) bool { return status >= 300 })
	for _, test := range []struct {
		status int
		opts   []middleware.Option
		want   middleware.Outcome
	}{
		{422, nil, middleware.Executed}, {404, nil, middleware.Freed}, {500, nil, middleware.Freed}, {299, []middleware.Option{custom}, middleware.Freed},
		{404, []middleware.Option{custom}, middleware.Executed}, {500, []middleware.Option{middleware.WithAtMostOnce()}, middleware.Executed},
		{499, []middleware.Option{custom, middleware.WithAtMostOnce()}, middleware.Executed}, {429, []middleware.Option{middleware.WithAtMostOnce()}, middleware.Freed},
	} {
		b := redistest.Mini(t)
		s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.status) }, test.opts...)
		s.want(s.send(), test.status, test.want)
		if keys := b.Keys(t); (len(keys) == 0) != (test.want == middleware.Freed) {
			t.Errorf("%d: keys %q", test.status, keys)
		}
	}
}
