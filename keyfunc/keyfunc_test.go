package keyfunc_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

// sentinels are the errors that say what is wrong with a request.
var sentinels = []error{keyfunc.ErrMissing, keyfunc.ErrInvalid, keyfunc.ErrNoUser}

// expect checks the key and the error of fn(r). An error must match wantErr and none of the other sentinels.
func expect(t *testing.T, fn keyfunc.Func, r *http.Request, want string, wantErr error) {
	t.Helper()
	got, err := fn(r)
	if !errors.Is(err, wantErr) {
		t.Fatalf("err = %v, want %v", err, wantErr)
	}
	if got != want {
		t.Fatalf("key = %q, want %q", got, want)
	}
	for _, other := range sentinels {
		if !errors.Is(wantErr, other) && errors.Is(err, other) {
			t.Fatalf("err = %v, is also %v", err, other)
		}
	}
}

func expectPanic(t *testing.T, prefix string, fn func()) {
	t.Helper()
	defer func() {
		t.Helper()
		got, _ := recover().(string)
		if !strings.HasPrefix(got, prefix) {
			t.Errorf("panic = %q, want the prefix %q", got, prefix)
		}
	}()
	fn()
}

// fixed returns a Func that ignores the request.
func fixed(key string, err error) keyfunc.Func {
	return func(*http.Request) (string, error) { return key, err }
}

func post(target string) *http.Request {
	return httptest.NewRequest(http.MethodPost, target, nil)
}

func TestPanicsAtConstruction(t *testing.T) {
	t.Parallel()
	a := keyfunc.Anonymous()
	cases := []struct {
		prefix string
		fn     func()
	}{
		{"keyfunc.Header: ", func() { keyfunc.Header("") }},
		{"keyfunc.Header: ", func() { keyfunc.Header("Idempotency Key") }},
		{"keyfunc.Header: ", func() { keyfunc.Header("Idempotency-Key:") }},
		{"keyfunc.Header: ", func() { keyfunc.Header("Schlüssel") }},
		{"keyfunc.Form: ", func() { keyfunc.Form("") }},
		{"keyfunc.Query: ", func() { keyfunc.Query("") }},
		{"keyfunc.User: fn is nil", func() { keyfunc.User(nil) }},
		{"keyfunc.First: no functions", func() { keyfunc.First() }},
		{"keyfunc.First: argument 2 is nil", func() { keyfunc.First(a, nil) }},
		{"keyfunc.Compose: no functions", func() { keyfunc.Compose() }},
		{"keyfunc.Compose: argument 1 is nil", func() { keyfunc.Compose(nil, a) }},
		{"keyfunc.Standard: user is nil", func() { keyfunc.Standard(nil) }},
	}
	for _, c := range cases {
		expectPanic(t, c.prefix, c.fn)
	}
}

// conformance: 35, for this package: no error contains the key that the client sent
func TestErrorsDoNotEchoTheKey(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	long := strings.Repeat(secret, 50)
	header := func(lines ...string) *http.Request {
		r := post("/")
		r.Header["Idempotency-Key"] = lines
		return r
	}
	form := func(contentType, body string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		return r
	}
	byHeader, byForm, byQuery := keyfunc.Header("Idempotency-Key"), keyfunc.Form("key"), keyfunc.Query("key")
	cases := []struct {
		name string
		fn   keyfunc.Func
		r    *http.Request
	}{
		{"two lines", byHeader, header(secret, secret)},
		{"list", byHeader, header(secret + "," + secret)},
		{"unfinished string", byHeader, header(`"` + secret)},
		{"after the string", byHeader, header(`"a"` + secret)},
		{"long", byHeader, header(long)},
		{"long string", byHeader, header(`"` + long + `"`)},
		{"form twice", byForm, form("application/x-www-form-urlencoded", "key="+secret+"&key="+secret)},
		{"form escape", byForm, form("application/x-www-form-urlencoded", "key="+secret+"%zz")},
		{"form line", byForm, form("multipart/form-data; boundary=b", "--b\r\n\r\n\r\n--b"+secret+"\r\n")},
		{"query long", byQuery, post("/?key=" + long)},
		{"query escape", byQuery, post("/?key=" + secret + "%zz")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := c.fn(c.r)
			if !errors.Is(err, keyfunc.ErrInvalid) {
				t.Fatalf("err = %v, want %v", err, keyfunc.ErrInvalid)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("err = %q contains the key", err)
			}
		})
	}
}

type userKey struct{}

func as(r *http.Request, user string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, user))
}

func currentUser(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
