package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// conformance: 1, 2, 4, 7, 9, 11
func TestValidKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ first, second []edit }{
		"string":             {[]edit{key(`"abc"`)}, []edit{key(`"abc"`)}},
		"bare is the string": {[]edit{key(`"abc"`)}, []edit{key(`abc`)}},
		"bare UUID":          {[]edit{key(`8e03978e-40d5-43dd-bc93-6894a57f9324`)}, []edit{key(`"8e03978e-40d5-43dd-bc93-6894a57f9324"`)}},
		"escapes":            {[]edit{key(`"a\"b\\c"`)}, []edit{key(`"a\"b\\c"`)}},
		"parameters":         {[]edit{key(`"abc"`)}, []edit{key(`"abc";p=1;q`)}},
		"255 characters":     {[]edit{key(strings.Repeat("a", 255))}, []edit{key(`"` + strings.Repeat("a", 255) + `"`)}},
		"name in any case":   {[]edit{noKey, header("IDEMPOTENCY-KEY", "abc")}, []edit{noKey, header("idempotency-key", "abc")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, redistest.Mini(t), payOnce())
			s.want(s.send(test.first...), http.StatusCreated, middleware.Executed)
			s.want(s.send(test.second...), http.StatusCreated, middleware.Replayed)
			s.wantRuns(1)
		})
	}
}

// conformance: 11
func TestAnotherHeader(t *testing.T) {
	t.Parallel()
	byHeader := keyfunc.Compose(keyfunc.Route(), keyfunc.BasicUser(), keyfunc.Header("X-Request-Key"))
	s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), byHeader, payOnce())
	s.want(s.send(header("X-Request-Key", "abc")), http.StatusCreated, middleware.Executed)
	s.want(s.send(header("X-Request-Key", "abc"), noKey), http.StatusCreated, middleware.Replayed)
}

// conformance: 2, 3, 5, 6, 8, 9, 10
func TestInvalidKeys(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	p := redistest.NewProxy(t, b.Addr())
	s := serveOn(t, newLocker(t, p.Client(t)), payOnce())
	for name, e := range map[string]edit{
		"other escape":   key(`"a\nb"`),
		"tab":            key("\"a\tb\""),
		"non-ASCII":      key(`"äöü"`),
		"two lines":      func(r *http.Request) { r.Header["Idempotency-Key"] = []string{`"a"`, `"b"`} },
		"a list":         key(`"a", "b"`),
		"a bare list":    key(`a, b`),
		"empty":          key(``),
		"empty string":   key(`""`),
		"unterminated":   key(`"abc`),
		"256 characters": key(strings.Repeat("a", 256)),
	} {
		t.Run(name, func(t *testing.T) {
			a := s.send(e)
			if e := s.want(a, http.StatusBadRequest, middleware.InvalidKey); !errors.Is(e.Err, keyfunc.ErrInvalid) {
				t.Errorf("event's error %v, want ErrInvalid", e.Err)
			}
			if got := a.problem(); got != "key-invalid" {
				t.Errorf("problem %q, want key-invalid", got)
			}
		})
	}
	s.wantRuns(0)
	if got := p.Commands(); len(got) > 0 {
		t.Errorf("Redis was asked: %q", got)
	}
}

// conformance: 12
func TestMethods(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		opts      []middleware.Option
		protected string
		untouched string
	}{
		"default": {nil, "POST PATCH", "GET HEAD OPTIONS PUT DELETE"},
		"chosen":  {[]middleware.Option{middleware.WithMethods("PUT", "DELETE")}, "PUT DELETE", "GET HEAD OPTIONS POST PATCH"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, redistest.Mini(t), payOnce(), append(test.opts, middleware.WithRequired())...)
			for m := range strings.FieldsSeq(test.protected) {
				s.want(s.send(method(m)), http.StatusCreated, middleware.Executed)
				s.want(s.send(method(m)), http.StatusCreated, middleware.Replayed)
			}
			for m := range strings.FieldsSeq(test.untouched) {
				for range 2 { // malformed, and absent
					if a := s.send(method(m), key(`"`)); a.status != http.StatusCreated || a.replayed() {
						t.Errorf("%s: %d, want 201 from the handler", m, a.status)
					}
				}
			}
			if len(s.events) > 0 {
				t.Errorf("an event of an untouched request: %+v", <-s.events)
			}
		})
	}
}

// conformance: 13
func TestNoKey(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce())
		for range 2 {
			s.want(s.send(noKey), http.StatusCreated, middleware.Unprotected)
		}
		s.want(s.send(noKey, func(r *http.Request) { r.Header.Del("Authorization") }), http.StatusCreated, middleware.Unprotected)
		s.wantRuns(3)
		if keys := b.Keys(t); len(keys) > 0 {
			t.Errorf("stored: %q", keys)
		}

		required := serve(t, b, payOnce(), middleware.WithRequired())
		a := required.send(noKey)
		required.want(a, http.StatusBadRequest, middleware.MissingKey)
		if got := a.problem(); got != "key-missing" {
			t.Errorf("problem %q, want key-missing", got)
		}
		preflight := required.send(noKey, method(http.MethodOptions), header("Origin", "https://shop.example"),
			header("Access-Control-Request-Method", "POST"))
		if preflight.status != http.StatusCreated {
			t.Errorf("preflight: %d, want it to reach the handler", preflight.status)
		}
		required.wantRuns(1)
	})
}

// An unprotected request is passed on as it came: its body is not limited.
func TestNoKeyLeavesTheBodyAlone(t *testing.T) {
	t.Parallel()
	fns := map[string]keyfunc.Func{
		"header": keyfunc.Standard(keyfunc.BasicUser()),
		"form":   keyfunc.Compose(keyfunc.First(keyfunc.Form("key"), keyfunc.Header("Idempotency-Key"))),
	}
	for name, fn := range fns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const sent = "item=1&item=2"
			limit := middleware.WithMaxBody(int64(len(sent)))
			long := sent
			if name == "header" {
				long = strings.Repeat(sent, 3)
			}
			s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), fn, echo, limit)
			a := s.send(noKey, body("application/x-www-form-urlencoded", long))
			s.want(a, http.StatusOK, middleware.Unprotected)
			if a.body != long {
				t.Errorf("the handler read %q, want %q", a.body, long)
			}
		})
	}
}

func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

// conformance: 14
func TestInvalidKeyDoesNotReadTheBody(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), payOnce(), middleware.WithRequired())
	for name, line := range map[string]string{"malformed": "Idempotency-Key: \"\r\n", "missing": ""} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /payments HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 10\r\n%s\r\n", line)
			status, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.HasPrefix(status, "HTTP/1.1 400 ") {
				t.Errorf("the first line is %q, %v, want a 400 and no 100", status, err)
			}
		})
	}
	s.wantRuns(0)
}

func TestKeyFunctionErrors(t *testing.T) {
	t.Parallel()
	failed := errors.New("the directory is down")
	for name, test := range map[string]struct {
		key     keyfunc.Func
		status  int
		problem string
		outcome middleware.Outcome
		err     error
	}{
		"no user": {
			keyfunc.Standard(keyfunc.User(func(context.Context) string { return "" })),
			http.StatusUnauthorized, "user-unknown", middleware.NoUser, nil,
		},
		"failed": {
			func(*http.Request) (string, error) { return "", failed },
			http.StatusInternalServerError, "key-failed", middleware.KeyFailed, failed,
		},
		"empty key": {
			func(*http.Request) (string, error) { return "", nil },
			http.StatusBadRequest, "key-invalid", middleware.InvalidKey, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), test.key, payOnce())
			a := s.send()
			if e := s.want(a, test.status, test.outcome); !errors.Is(e.Err, test.err) {
				t.Errorf("event's error %v, want %v", e.Err, test.err)
			}
			if got := a.problem(); got != test.problem {
				t.Errorf("problem %q, want %q", got, test.problem)
			}
			s.wantRuns(0)
		})
	}
}

// conformance: 20
func TestBodyTooLarge(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		form := keyfunc.Compose(keyfunc.Route(), keyfunc.Form("key"))
		for name, fn := range map[string]keyfunc.Func{"header": keyfunc.Standard(keyfunc.BasicUser()), "form": form} {
			for _, framing := range []string{"length", "chunked"} {
				s := serveKeyed(t, newLocker(t, b.Client(t)), fn, payOnce(), middleware.WithMaxBody(20))
				const fits, long = "key=k1&amount=123456", "key=k1&amount=1234567"
				a := s.send(body("application/x-www-form-urlencoded", long), func(r *http.Request) {
					if framing == "chunked" {
						r.ContentLength = -1
					}
				})
				s.want(a, http.StatusRequestEntityTooLarge, middleware.TooLarge)
				if got := a.problem(); got != "body-too-large" {
					t.Errorf("%s, %s: problem %q, want body-too-large", name, framing, got)
				}
				s.wantRuns(0)
				s.want(s.send(body("application/x-www-form-urlencoded", fits)), http.StatusCreated, middleware.Executed)
				b.FlushAll(t)
			}
		}
	})
}

// conformance: 20
func TestClientBreaksOff(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		form := keyfunc.Compose(keyfunc.Route(), keyfunc.Form("key"))
		for name, fn := range map[string]keyfunc.Func{"header": keyfunc.Standard(keyfunc.BasicUser()), "form": form} {
			s := serveKeyed(t, newLocker(t, b.Client(t)), fn, payOnce())
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "POST /payments HTTP/1.1\r\nHost: test\r\nAuthorization: Basic YW5uOg==\r\nIdempotency-Key: k1\r\n"+
				"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nkey=k1&am")
			_ = conn.Close()
			e := s.event()
			if e.Outcome != middleware.BodyUnreadable || e.Status != http.StatusBadRequest || e.Err == nil {
				t.Errorf("%s: %+v, want unreadable, 400 and the error", name, e)
			}
			s.wantRuns(0)
			if keys := b.Keys(t); len(keys) > 0 {
				t.Errorf("%s: stored: %q", name, keys)
			}
		}
	})
}

// A body that is used up before the fingerprint is taken would make all requests with a key alike.
func TestKeyFunctionUsesUpTheBody(t *testing.T) {
	t.Parallel()
	careless := func(r *http.Request) (string, error) { return r.FormValue("key"), nil }
	s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), careless, payOnce())
	for _, length := range []int64{8, -1} {
		a := s.send(body("application/x-www-form-urlencoded", "key=1&n=1"[:8]), func(r *http.Request) { r.ContentLength = length })
		if e := s.want(a, http.StatusInternalServerError, middleware.KeyFailed); e.Err == nil {
			t.Error("the event has no error")
		}
	}
	s.wantRuns(0)
}

// Without a length, a body that was read before is not told from one that was sent empty. The Event says so.
//
// fault: an outer middleware has read the body of a request in chunks.
func TestEmptyBodyOfUnknownLength(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text   string
		length int64
		doubt  bool
	}{
		"in chunks, read before":  {"amount=1000", -1, true},
		"in chunks, sent empty":   {"", -1, true},
		"no body":                 {"", 0, false},
		"in chunks, not read yet": {"amount=1000", -1, false},
	} {
		for way, opts := range map[string][]middleware.Option{"acting": nil, "in shadow": {middleware.WithShadow()}} {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				var events []middleware.Event
				observe := middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) })
				handler := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"),
					append(opts, observe)...)(payOnce())
				for range 2 {
					r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(test.text))
					if r.ContentLength = test.length; test.doubt {
						_, _ = io.Copy(io.Discard, r.Body)
					}
					r.Header.Set("Idempotency-Key", "k1")
					handler.ServeHTTP(httptest.NewRecorder(), r)
				}
				want := []middleware.Outcome{middleware.Executed, middleware.Replayed}
				for i, e := range events {
					if got := fmt.Sprint(e.Err); e.Outcome != want[i] || strings.Contains(got, "may have read it") != test.doubt {
						t.Errorf("%s, %s; want %s, doubt %t", e.Outcome, got, want[i], test.doubt)
					}
				}
				if len(events) != 2 {
					t.Errorf("%d events", len(events))
				}
			})
		}
	}
}

// A form that an outer middleware has parsed, to look for its own field, was read before, whether it had a length or not.
func TestFormWasParsedBefore(t *testing.T) {
	t.Parallel()
	for contentType, text := range map[string]string{
		"application/x-www-form-urlencoded": "csrf=x&amount=10",
		"multipart/form-data; boundary=b":   "--b\r\nContent-Disposition: form-data; name=bill; filename=1\r\n\r\n10\r\n--b--\r\n",
	} {
		for _, length := range []int64{int64(len(text)), -1} {
			t.Run(fmt.Sprintf("%s, %d", contentType, length), func(t *testing.T) {
				t.Parallel()
				s := serve(t, redistest.Mini(t), payOnce())
				s.outer = func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_ = r.PostFormValue("csrf")
						next.ServeHTTP(w, r)
					})
				}
				a := s.send(body(contentType, text), func(r *http.Request) { r.ContentLength = length })
				if e := s.want(a, http.StatusInternalServerError, middleware.KeyFailed); e.Err == nil || a.problem() != "key-failed" {
					t.Errorf("%q, %v; want key-failed, and an error", a.problem(), e.Err)
				}
				s.wantRuns(0)
			})
		}
	}
}
