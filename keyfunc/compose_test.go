package keyfunc_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

var errOther = errors.New("something else")

func TestFirst(t *testing.T) {
	t.Parallel()
	missing := fixed("", fmt.Errorf("no field: %w", keyfunc.ErrMissing))
	for _, c := range []struct {
		fns  []keyfunc.Func
		want string
		err  error
	}{
		{[]keyfunc.Func{fixed("a", nil), fixed("b", nil)}, "a", nil},
		{[]keyfunc.Func{missing, fixed("b", nil)}, "b", nil},
		{[]keyfunc.Func{missing, fixed("", keyfunc.ErrInvalid), fixed("b", nil)}, "", keyfunc.ErrInvalid},
		{[]keyfunc.Func{fixed("", keyfunc.ErrNoUser), fixed("b", nil)}, "", keyfunc.ErrNoUser},
		{[]keyfunc.Func{fixed("", errOther), fixed("b", nil)}, "", errOther},
	} {
		expect(t, keyfunc.First(c.fns...), post("/"), c.want, c.err)
	}
}

func compose(t *testing.T, parts ...string) string {
	t.Helper()
	fns := make([]keyfunc.Func, len(parts))
	for i, p := range parts {
		fns[i] = fixed(p, nil)
	}
	key, err := keyfunc.Compose(fns...)(post("/"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// FuzzCompose splits two strings into lists. Their keys must be equal if and only if the lists are, and each list must
// be decodable from its key.
//
// conformance: 32, for keys
func FuzzCompose(f *testing.F) {
	f.Add("a|b:c", "a:b|c", "|")
	f.Add("1:a1:b", "1:a|1:b", "|")
	f.Add("", "|", "|")
	f.Add("a|", "|a", "|")
	f.Add("0:", "0:|0:", "|")
	f.Add("10:aaaaaaaaaa", "aaaaaaaaaa", "0")
	f.Add(strings.Repeat("a", 300), strings.Repeat("a", 150)+"|"+strings.Repeat("a", 150), "|")
	f.Fuzz(func(t *testing.T, a, b, cut string) {
		if cut == "" {
			return
		}
		listA, listB := strings.Split(a, cut), strings.Split(b, cut)
		keyA, keyB := compose(t, listA...), compose(t, listB...)
		if (keyA == keyB) != slices.Equal(listA, listB) {
			t.Fatalf("%q and %q give %q and %q", listA, listB, keyA, keyB)
		}
		if got := decompose(t, keyA); !slices.Equal(got, listA) {
			t.Fatalf("key %q of %q decodes to %q", keyA, listA, got)
		}
	})
}

// decompose returns the parts of a key that Compose made.
func decompose(t *testing.T, key string) (parts []string) {
	t.Helper()
	for key != "" {
		length, rest, _ := strings.Cut(key, ":")
		n, err := strconv.Atoi(length)
		if err != nil || n > len(rest) {
			t.Fatalf("%q does not decode", key)
		}
		parts, key = append(parts, rest[:n]), rest[n:]
	}
	return parts
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

// conformance: 6, 10, for keys: the header is checked before user is called. The place of the user is not that of the key,
// so no error names it.
func TestStandardReadsTheHeaderFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line   []string
		user   keyfunc.Func
		called bool
		err    error
	}{
		{nil, fixed("", keyfunc.ErrNoUser), false, keyfunc.ErrMissing},
		{[]string{""}, fixed("", keyfunc.ErrNoUser), false, keyfunc.ErrInvalid},
		{[]string{"abc"}, fixed("", keyfunc.ErrNoUser), true, keyfunc.ErrNoUser},
		{[]string{"abc"}, fixed("", nil), true, keyfunc.ErrNoUser},
		{[]string{"abc"}, keyfunc.Header("X-User"), true, keyfunc.ErrNoUser},
		{[]string{"abc"}, fixed("", errOther), true, errOther},
	} {
		called := false
		user := func(r *http.Request) (string, error) {
			called = true
			return c.user(r)
		}
		for _, fn := range []keyfunc.Func{keyfunc.Standard(user), keyfunc.Scoped(keyfunc.Opaque("Idempotency-Key"), user)} {
			called = false
			r := withKey(c.line...)
			expect(t, fn, r, "", c.err)
			if _, err := fn(r); called != c.called || called && errors.As(err, new(keyfunc.MissingError)) {
				t.Errorf("%q: %v, user called: %t", c.line, err, called)
			}
		}
	}
}

// Standard and Scoped join what Compose joins, and so does StandardKey.
func TestStandardKey(t *testing.T) {
	t.Parallel()
	long := func(letter string) string { return strings.Repeat(letter, 400) }
	user := keyfunc.User(currentUser)
	for _, c := range []struct{ user, method, target, line, key string }{
		{"42", "POST", "/orders", "abc", "abc"},
		{"42", "", "/orders", `"abc"`, "abc"},
		{"42", "PATCH", "/orders/7?page=2", `"a \"b\\"`, `a "b\`},
		{"ü:1", "POST", "/a%2Fb/../c//", "abc", "abc"},
		{long("u"), "POST", "/" + long("p"), long("k")[:255], long("k")[:255]},
	} {
		r := as(post(c.target), c.user)
		r.Method = c.method
		r.Header.Set("Idempotency-Key", c.line)
		for _, fn := range []keyfunc.Func{
			keyfunc.Standard(user), keyfunc.Scoped(byHeader, user), keyfunc.Compose(keyfunc.Route(), user, byHeader),
		} {
			expect(t, fn, r, keyfunc.StandardKey(c.user, c.method, c.target, c.key), nil)
		}
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
