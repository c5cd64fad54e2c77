package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// Which texts are keys is in package keyfunc. The tests in this file are of what the middleware makes of them.

// conformance: 1, 4, 7, 9, 11
func TestValidKeys(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	for name, test := range map[string]struct {
		first, second []edit
		want          middleware.Outcome
	}{
		"bare is the string": {[]edit{key(`"abc"`)}, []edit{key(`abc`)}, middleware.Replayed},
		"parameters":         {[]edit{key(`"abc"`)}, []edit{key(`"abc";p=1;q`)}, middleware.Replayed},
		"255 characters":     {[]edit{key(strings.Repeat("a", 255))}, []edit{key(`"` + strings.Repeat("a", 255) + `"`)}, middleware.Replayed},
		"name in any case":   {[]edit{noKey, header("IDEMPOTENCY-KEY", "abc")}, []edit{noKey, header("idempotency-key", "abc")}, middleware.Replayed},
		"case of the key":    {[]edit{key("abc")}, []edit{key("ABC")}, middleware.Executed},
	} {
		b.FlushAll(t)
		s := serve(t, b, payOnce())
		s.want(s.send(test.first...), http.StatusCreated, middleware.Executed)
		if e := s.want(s.send(test.second...), http.StatusCreated, test.want); t.Failed() {
			t.Fatalf("%s: %+v", name, e)
		}
	}
	b.FlushAll(t)
	byHeader := keyfunc.Compose(keyfunc.Route(), keyfunc.BasicUser(), keyfunc.Header("X-Request-Key"))
	s := serveKeyed(t, newLocker(t, b.Client(t)), byHeader, payOnce())
	s.want(s.send(header("X-Request-Key", "abc")), http.StatusCreated, middleware.Executed)
	s.want(s.send(header("X-Request-Key", "abc"), noKey), http.StatusCreated, middleware.Replayed)
}

// What a key function, or the function of WithKeyAge, returns instead of a key is a refusal before Redis is asked.
//
// conformance: 2, 3, 5, 6, 8, 9, 10, 20
func TestKeyErrors(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	p := redistest.NewProxy(t, b.Addr())
	locker := newLocker(t, p.Client(t))
	failed := errors.New("the directory is down")
	returns := func(err error) keyfunc.Func { return func(*http.Request) (string, error) { return "", err } }
	standard := keyfunc.Standard(keyfunc.BasicUser())
	for name, test := range map[string]struct {
		key     keyfunc.Func
		edit    edit
		opts    []middleware.Option
		status  int
		problem string
		outcome middleware.Outcome
		err     error
	}{
		"other escape":   {standard, key(`"a\nb"`), nil, 400, "key-invalid", middleware.InvalidKey, keyfunc.ErrInvalid},
		"non-ASCII":      {standard, key(`"äöü"`), nil, 400, "key-invalid", middleware.InvalidKey, keyfunc.ErrInvalid},
		"two lines":      {standard, func(r *http.Request) { r.Header["Idempotency-Key"] = []string{`"a"`, `"b"`} }, nil, 400, "key-invalid", middleware.InvalidKey, keyfunc.ErrInvalid},
		"empty":          {standard, key(``), nil, 400, "key-invalid", middleware.InvalidKey, keyfunc.ErrInvalid},
		"256 characters": {standard, key(strings.Repeat("a", 256)), nil, 400, "key-invalid", middleware.InvalidKey, keyfunc.ErrInvalid},
		"no user":        {keyfunc.Standard(keyfunc.User(func(context.Context) string { return "" })), key("a"), nil, 401, "user-unknown", middleware.NoUser, nil},
		"failed":         {returns(failed), key("a"), nil, 500, "key-failed", middleware.KeyFailed, failed},
		"empty key":      {returns(nil), key("a"), nil, 400, "key-invalid", middleware.InvalidKey, nil},
		"of the age":     {standard, key("a"), []middleware.Option{middleware.WithKeyAge(1, returns(failed))}, 500, "key-failed", middleware.KeyFailed, failed},
		"required":       {standard, noKey, []middleware.Option{middleware.WithRequired()}, 400, "key-missing", middleware.MissingKey, nil},
		"another status": {standard, noKey, []middleware.Option{middleware.WithRequired(), middleware.WithProblemStatus("key-reused", 409)}, 400, "key-missing", middleware.MissingKey, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveKeyed(t, locker, test.key, payOnce(), test.opts...)
			a := s.send(test.edit)
			if e := s.wantRefused(a, test.status, test.outcome, test.problem); !errors.Is(e.Err, test.err) {
				t.Errorf("event's error %v, want %v", e.Err, test.err)
			}
			s.wantRuns(0)
		})
	}
	if got := p.Commands(); len(got) > 0 {
		t.Errorf("Redis was asked: %q", got)
	}
}

// conformance: 12, 13
func TestMethods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts                 []middleware.Option
		protected, untouched string
	}{
		"default": {nil, "POST PATCH", "GET HEAD OPTIONS PUT DELETE"},
		"chosen":  {[]middleware.Option{middleware.WithMethods("PUT", "DELETE")}, "PUT DELETE", "GET HEAD OPTIONS POST PATCH"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, redistest.Mini(t), payOnce(), append(test.opts, middleware.WithRequired())...)
			for m := range strings.FieldsSeq(test.protected) {
				s.want(s.send(method(m)), http.StatusCreated, middleware.Executed)
				s.want(s.send(method(m)), http.StatusCreated, middleware.Replayed)
			}
			for m := range strings.FieldsSeq(test.untouched) {
				for range 2 {
					if a := s.send(method(m), key(`"`)); a.status != http.StatusCreated || a.replayed() {
						t.Errorf("%s: %d, want 201 from the handler", m, a.status)
					}
				}
			}
			s.noEvent()
		})
	}
}

// An unprotected request is passed on as it came, and nothing is stored: its body is not limited.
//
// conformance: 13
func TestNoKey(t *testing.T) {
	t.Parallel()
	const sent = "item=1&item=2"
	for name, test := range map[string]struct {
		key  keyfunc.Func
		body string
	}{
		"header": {keyfunc.Standard(keyfunc.BasicUser()), strings.Repeat(sent, 3)},
		"form":   {keyfunc.First(keyfunc.Form("key"), headerKey), sent},
	} {
		b := redistest.Mini(t)
		s := serveKeyed(t, newLocker(t, b.Client(t)), test.key, echo, middleware.WithMaxBody(int64(len(sent))))
		a := s.send(noKey, body("application/x-www-form-urlencoded", test.body))
		if s.want(a, http.StatusOK, middleware.Unprotected); a.body != test.body || len(b.Keys(t)) > 0 {
			t.Errorf("%s: the handler read %q, want %q; stored: %q", name, a.body, test.body, b.Keys(t))
		}
	}
}

func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

// conformance: 14
func TestInvalidKeyDoesNotReadTheBody(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), payOnce(), middleware.WithRequired())
	for name, line := range map[string]string{"malformed": "Idempotency-Key: \"\r\n", "missing": ""} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /payments HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 10\r\n%s\r\n", line)
		status, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(status, "HTTP/1.1 400 ") {
			t.Errorf("%s: the first line is %q, %v, want a 400 and no 100", name, status, err)
		}
	}
	s.wantRuns(0)
}

// A body that cannot be read whole, or was read before, is refused, and the key is left free.
//
// fault: a body that is used up before the fingerprint is taken would make all requests with a key alike.
//
// conformance: 20
func TestBodies(t *testing.T) {
	t.Parallel()
	const form = "application/x-www-form-urlencoded"
	parse := func(r *http.Request) { _ = r.PostFormValue("csrf") }
	drain := func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	byForm := keyfunc.Compose(keyfunc.Route(), keyfunc.Form("key"))
	careless := func(r *http.Request) (string, error) { return r.FormValue("key"), nil }
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	whole := func(*http.Request) {}
	none := func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 }
	const tooLarge, used, ok = middleware.TooLarge, middleware.KeyFailed, middleware.Executed
	for name, test := range map[string]struct {
		key    keyfunc.Func // of the header if nil
		before func(*http.Request)
		sent   edit
		length edit
		want   middleware.Outcome
		err    string
	}{
		"as long as the limit":             {nil, whole, body(form, "key=k1&amount=123456"), whole, ok, ""},
		"longer":                           {nil, whole, body(form, "key=k1&amount=1234567"), whole, tooLarge, ""},
		"longer, in chunks":                {nil, whole, body(form, "key=k1&amount=1234567"), chunked, tooLarge, ""},
		"as long, by a form":               {byForm, whole, body(form, "key=k1&amount=123456"), whole, ok, ""},
		"longer, by a form":                {byForm, whole, body(form, "key=k1&amount=1234567"), whole, tooLarge, ""},
		"longer, in chunks, by a form":     {byForm, whole, body(form, "key=k1&amount=1234567"), chunked, tooLarge, ""},
		"used by the key function":         {careless, whole, body(form, "key=1&n=1"), whole, used, "used up"},
		"used, in chunks":                  {careless, whole, body(form, "key=1&n=1"), chunked, used, "used up"},
		"read before":                      {nil, drain, body(form, "amount=10"), whole, used, "used up"},
		"read before, in chunks":           {nil, drain, body(form, "amount=10"), chunked, ok, "may have read it"},
		"empty, in chunks":                 {nil, whole, body(form, ""), chunked, ok, "may have read it"},
		"no body":                          {nil, whole, none, whole, ok, ""},
		"a parsed form":                    {nil, parse, body(form, "csrf=x"), whole, used, "used up"},
		"a parsed form, in chunks":         {nil, parse, body(form, "csrf=x"), chunked, used, "used up"},
		"an empty parsed form":             {nil, parse, none, whole, ok, ""},
		"a parsed multipart form, chunked": {nil, parse, body("multipart/form-data; boundary=b", "--b\r\n\r\n\r\n--b--\r\n"), chunked, used, "used up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := redistest.Mini(t)
			if test.key == nil {
				test.key = headerKey
			}
			s := serveKeyed(t, newLocker(t, b.Client(t)), test.key, payOnce(), middleware.WithMaxBody(20))
			s.outer = func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					test.before(r)
					next.ServeHTTP(w, r)
				})
			}
			status := map[middleware.Outcome]int{tooLarge: 413, used: 500, ok: 201}[test.want]
			e := s.want(s.send(test.sent, test.length), status, test.want)
			if got := fmt.Sprint(e.Err); !strings.Contains(got, test.err) || (test.err == "") != (e.Err == nil) {
				t.Errorf("error %v, want %q", e.Err, test.err)
			}
			if keys := b.Keys(t); (len(keys) == 0) != (test.want != ok) {
				t.Errorf("keys %q", keys)
			}
		})
	}
}

// conformance: 20
func TestClientBreaksOff(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	for name, fn := range map[string]keyfunc.Func{"header": headerKey, "form": keyfunc.Form("key")} {
		s := serveKeyed(t, newLocker(t, b.Client(t)), fn, payOnce())
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "POST /payments HTTP/1.1\r\nHost: test\r\nIdempotency-Key: k1\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nkey=k1&am")
		_ = conn.Close()
		e := s.event()
		if e.Outcome != middleware.BodyUnreadable || e.Status != http.StatusBadRequest || e.Err == nil || len(b.Keys(t)) > 0 {
			t.Errorf("%s: %+v, want unreadable, 400 and the error; keys %q", name, e, b.Keys(t))
		}
		s.wantRuns(0)
	}
}
