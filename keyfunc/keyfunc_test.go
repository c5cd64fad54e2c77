package keyfunc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	for prefix, fns := range map[string][]func(){
		"keyfunc.Header: ": {
			func() { keyfunc.Header("") }, func() { keyfunc.Header("Idempotency Key") },
			func() { keyfunc.Header("Idempotency-Key:") }, func() { keyfunc.Header("Schlüssel") },
		},
		"keyfunc.Opaque: ":                   {func() { keyfunc.Opaque("") }},
		"keyfunc.Form: ":                     {func() { keyfunc.Form("") }},
		"keyfunc.Query: ":                    {func() { keyfunc.Query("") }},
		"keyfunc.User: fn is nil":            {func() { keyfunc.User(nil) }},
		"keyfunc.First: no functions":        {func() { keyfunc.First() }},
		"keyfunc.First: argument 2 is nil":   {func() { keyfunc.First(a, nil) }},
		"keyfunc.Compose: no functions":      {func() { keyfunc.Compose() }},
		"keyfunc.Compose: argument 1 is nil": {func() { keyfunc.Compose(nil, a) }},
		"keyfunc.Standard: user is nil":      {func() { keyfunc.Standard(nil) }},
		"keyfunc.Scoped: key is nil":         {func() { keyfunc.Scoped(nil, a) }},
		"keyfunc.Scoped: user is nil":        {func() { keyfunc.Scoped(a, nil) }},
	} {
		for _, fn := range fns {
			expectPanic(t, prefix, fn)
		}
	}
	for _, pointer := range []string{"", "id", "#/id", "/a~", "/a~2b", "/~~01", "/a\xff"} {
		expectPanic(t, "keyfunc.JSON: ", func() { keyfunc.JSON(pointer) })
	}
}

// source is a place in a request that has the client's key.
type source struct {
	fn      keyfunc.Func
	place   keyfunc.MissingError
	request func(values ...string) *http.Request
}

// pairs returns a query string, or a form, with a field that is not the key.
func pairs(values []string) string { return url.Values{"key": values, "item": {"1"}}.Encode() }

var sources = map[string]source{
	"Header": {keyfunc.Header("idempotency-key"), keyfunc.MissingError{In: "header", Name: "Idempotency-Key"}, func(values ...string) *http.Request {
		for i, v := range values {
			values[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
		}
		return withKey(values...)
	}},
	"Opaque": {keyfunc.Opaque("idempotency-key"), keyfunc.MissingError{In: "header", Name: "Idempotency-Key"}, withKey},
	"Query": {keyfunc.Query("key"), keyfunc.MissingError{In: "query parameter", Name: "key"}, func(values ...string) *http.Request {
		return post("/?" + pairs(values))
	}},
	"Form": {keyfunc.Form("key"), keyfunc.MissingError{In: "form field", Name: "key"}, func(values ...string) *http.Request {
		return withBody(urlencoded, pairs(values))
	}},
	"Form, multipart": {keyfunc.Form("key"), keyfunc.MissingError{In: "form field", Name: "key"}, func(values ...string) *http.Request {
		parts := []string{part("item", "1"), filePart("photo", "\x00\xff")}
		for _, v := range values {
			parts = append(parts, part("key", v))
		}
		return withBody(multi("xYz", parts...))
	}},
	"JSON": {keyfunc.JSON("/key"), keyfunc.MissingError{In: "JSON value", Name: "/key"}, func(values ...string) *http.Request {
		body := `{"item":1`
		for _, v := range values {
			body += fmt.Sprintf(`,"key":"%s"`, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`, "\x00", `\u0000`, "\n", `\n`).Replace(v))
		}
		return withBody(jsonType, body+"}")
	}},
}

// Each source takes the same keys, names its place if there is none, and puts nothing of a malformed one into its error.
//
// conformance: 9, 35
func TestSources(t *testing.T) {
	t.Parallel()
	k := func(n int) string { return strings.Repeat("k", n) }
	for name, s := range sources {
		for _, key := range []string{"abc", "a b", "a,b;c", `"`, `\`, "!", "~", k(255)} {
			expect(t, s.fn, s.request(key), key, nil)
		}
		for _, values := range [][]string{
			{""}, {k(256)}, {k(1 << 16)}, {"käse"}, {"kkk\tk"}, {"kkk\x00"}, {"\x7fkkk"}, {"kkk\nk"}, {"kkk", "kkk"},
		} {
			r := s.request(values...)
			expect(t, s.fn, r, "", keyfunc.ErrInvalid)
			if _, err := s.fn(r); strings.Contains(err.Error(), "kkk") {
				t.Errorf("%s: the error %q has the key in it", name, err)
			}
		}
		for _, fn := range []keyfunc.Func{
			s.fn, keyfunc.First(s.fn, keyfunc.Query("other")), keyfunc.Compose(keyfunc.Route(), s.fn), keyfunc.Scoped(s.fn, keyfunc.Anonymous()),
		} {
			expect(t, fn, s.request(), "", keyfunc.ErrMissing)
			_, err := fn(s.request())
			if got := (keyfunc.MissingError{}); !errors.As(err, &got) || got != s.place {
				t.Errorf("%s: %#v, want %#v", name, err, s.place)
			}
		}
	}
}

// conformance: 35, for what is malformed around the key
func TestErrorsDoNotEchoTheRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fn keyfunc.Func
		r  *http.Request
	}{
		"list":              {byHeader, withKey("secret,secret")},
		"unfinished string": {byHeader, withKey(`"secret`)},
		"after the string":  {byHeader, withKey(`"a"secret`)},
		"form escape":       {keyfunc.Form("key"), withBody(urlencoded, "key=secret%zz")},
		"form line":         {keyfunc.Form("key"), withBody("multipart/form-data; boundary=b", "--b\r\n\r\n\r\n--bsecret\r\n")},
		"query escape":      {keyfunc.Query("key"), post("/?key=secret%zz")},
		"query semicolon":   {keyfunc.Query("key"), post("/?item=1;key=secret")},
		"no JSON":           {keyfunc.JSON("/id"), withBody(jsonType, "secret")},
		"an object":         {keyfunc.JSON("/id"), withBody(jsonType, `{"id":{"secret":1}}`)},
	} {
		expect(t, c.fn, c.r, "", keyfunc.ErrInvalid)
		if _, err := c.fn(c.r); strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q", name, err)
		}
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

func TestUser(t *testing.T) {
	t.Parallel()
	expect(t, keyfunc.User(currentUser), as(post("/"), "42"), "42", nil)
	expect(t, keyfunc.User(currentUser), as(post("/"), ""), "", keyfunc.ErrNoUser)
	for user, want := range map[string]string{"ada": "ada", "zoë": "zoë", "ada l": "ada l", "": "", "\x00anonymous": "", "a\x7f": ""} {
		r := post("/")
		r.SetBasicAuth(user, "any password")
		var wantErr error
		if want == "" {
			wantErr = keyfunc.ErrNoUser
		}
		expect(t, keyfunc.BasicUser(), r, want, wantErr)
	}
	for _, authorization := range []string{"", "Bearer abc", "Basic", "Basic !", "Basic YWRh"} {
		r := post("/")
		r.Header.Set("Authorization", authorization)
		expect(t, keyfunc.BasicUser(), r, "", keyfunc.ErrNoUser)
	}
	expect(t, keyfunc.Anonymous(), as(post("/a"), "42"), "\x00anonymous", nil)
}

// fault: one user id and one key on two hosts -> two requests
func TestHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"Shop.EXAMPLE": "shop.example", "shop.example:8443": "shop.example:8443", "[::1]:80": "[::1]:80", "bank.example": "bank.example",
	} {
		r := &http.Request{Host: host, Header: http.Header{"X-Forwarded-Host": {"forged.example"}}}
		expect(t, keyfunc.Host(), r, want, nil)
	}
	expect(t, keyfunc.Host(), new(http.Request), "", keyfunc.ErrInvalid)
}

func TestRoute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, requestURI, url string
		path                    string // the part that the key must have
	}{
		{"POST", "/orders", "/elsewhere", "/orders"},
		{"POST", "/orders?a=/b", "/orders?a=/b", "/orders"},
		{"POST", "/a%2Fb/../c//d", "/", "/a%2Fb/../c//d"},
		{"POST", "//host/a", "/", "//host/a"},             // two slashes are no authority
		{"POST", "/go/http://x/y", "/", "/go/http://x/y"}, // nor is a URL in the path
		{"POST", "http://example.com/orders?a", "/", "/orders"},
		{"POST", "https://u@example.com:8/a%2Fb", "/", "/a%2Fb"},
		{"POST", "http://example.com", "/", "/"},
		{"POST", "http://example.com?a=/b", "/", "/"},
		{"OPTIONS", "*", "*", "*"},
		{"CONNECT", "example.com:443", "", "example.com:443"},
		{"POST", "?a", "/", "/"},
		{"POST", "", "http://example.com/orders?a", "/orders"}, // made by hand
		{"POST", "", "/a%2Fb", "/a%2Fb"},
		{"POST", "", "http://example.com", "/"},
		{"", "/orders", "/", "/orders"},
		{"post", "/orders", "/", "/orders"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		r := &http.Request{Method: c.method, RequestURI: c.requestURI, URL: u}
		expect(t, keyfunc.Route(), r, keyfunc.ComposedKey(cmp.Or(c.method, "GET"), c.path), nil)
	}
}
