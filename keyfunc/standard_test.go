package keyfunc_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

func TestStandardIsCompose(t *testing.T) {
	t.Parallel()
	user := keyfunc.User(currentUser)
	composed := keyfunc.Compose(keyfunc.Route(), user, keyfunc.Header("Idempotency-Key"))
	for _, line := range []string{"abc", `"abc"`, `"a\"b"`, strings.Repeat("k", 255)} {
		for _, path := range []string{"/orders", "/" + strings.Repeat("p", 400)} {
			for _, id := range []string{"42", strings.Repeat("u", 400)} {
				r := as(post(path), id)
				r.Header.Set("Idempotency-Key", line)
				want, err := composed(r)
				if err != nil {
					t.Fatal(err)
				}
				expect(t, keyfunc.Standard(user), r, want, nil)
			}
		}
	}
}

// conformance: 7, 11, 32
func TestStandardScopes(t *testing.T) {
	t.Parallel()
	key := func(method, path, user, line string) string {
		t.Helper()
		r := as(post(path), user)
		r.Method = method
		r.Header.Set("idempotency-key", line)
		got, err := keyfunc.Standard(keyfunc.User(currentUser))(r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := key("POST", "/orders", "A", "abc")
	for name, got := range map[string]string{
		"another user":   key("POST", "/orders", "B", "abc"),
		"another path":   key("POST", "/refunds", "A", "abc"),
		"another method": key("PATCH", "/orders", "A", "abc"),
		"another key":    key("POST", "/orders", "A", "abd"),
		"another case":   key("POST", "/orders", "A", "ABC"),
	} {
		if got == want {
			t.Errorf("%s: the same key %q", name, got)
		}
	}
	for name, got := range map[string]string{
		"quoted":        key("POST", "/orders", "A", `"abc"`),
		"another query": key("POST", "/orders?page=2", "A", "abc"),
	} {
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// conformance: 6, 10, for keys: the header is checked before user is called
func TestStandardReadsTheHeaderFirst(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, line string
		user       keyfunc.Func
		called     bool
		err        error
	}{
		{"missing", "", fixed("", keyfunc.ErrNoUser), false, keyfunc.ErrMissing},
		{"invalid", `"abc`, fixed("", keyfunc.ErrNoUser), false, keyfunc.ErrInvalid},
		{"no user", "abc", fixed("", keyfunc.ErrNoUser), true, keyfunc.ErrNoUser},
		{"empty", "abc", fixed("", nil), true, keyfunc.ErrNoUser},
		{"user missing", "abc", fixed("", fmt.Errorf("no session: %w", keyfunc.ErrMissing)), true, keyfunc.ErrNoUser},
		{"other error", "abc", fixed("", errOther), true, errOther},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			called := false
			fn := keyfunc.Standard(func(r *http.Request) (string, error) {
				called = true
				return c.user(r)
			})
			r := withKey()
			if c.line != "" {
				r = withKey(c.line)
			}
			expect(t, fn, r, "", c.err)
			if called != c.called {
				t.Errorf("user called = %t, want %t", called, c.called)
			}
		})
	}
}

func TestStandardKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ user, method, target, line, key string }{
		{"42", "POST", "/orders", "abc", "abc"},
		{"42", "", "/orders", `"abc"`, "abc"},
		{"42", "PATCH", "/orders/7?page=2", `"a \"b\\"`, `a "b\`},
		{"ü:1", "POST", "/a%2Fb/../c//", "abc", "abc"},
		{"42", "POST", "/", "abc", "abc"},
		{strings.Repeat("u", 400), "POST", "/" + strings.Repeat("p", 400), strings.Repeat("k", 255), strings.Repeat("k", 255)},
	} {
		r := as(post(c.target), c.user)
		r.Method = c.method
		r.Header.Set("Idempotency-Key", c.line)
		expect(t, keyfunc.Standard(keyfunc.User(currentUser)), r, keyfunc.StandardKey(c.user, c.method, c.target, c.key), nil)
	}
	if keyfunc.StandardKey("42", "POST", "", "abc") != keyfunc.StandardKey("42", "POST", "/", "abc") {
		t.Error("an empty path is not /")
	}
}

// FuzzStandardKey sends arbitrary requests over the wire. StandardKey derives what Standard derives.
func FuzzStandardKey(f *testing.F) {
	f.Add("42", "POST", "/orders", "abc")
	f.Add("\x00anonymous", "PATCH", "/a%2f/../b?c=d", `a"b\c`)
	f.Add("3:abc", "M", "/ü", " ")
	f.Add("42", "POST", "/", "a\n b")
	standard := keyfunc.Standard(keyfunc.User(currentUser))
	f.Fuzz(func(t *testing.T, user, method, path, key string) {
		line := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		wire := method + " " + path + " HTTP/1.1\r\nHost: a\r\nIdempotency-Key: " + line + "\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
		if err != nil || !strings.HasPrefix(r.RequestURI, "/") || r.RequestURI != path || r.Method != method {
			return
		}
		if r.Header.Get("Idempotency-Key") != line { // net/http joins the lines of a folded one
			return
		}
		want, err := standard(as(r, user))
		if err != nil {
			return
		}
		if got := keyfunc.StandardKey(user, method, path, key); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
