package keyfunc_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

func TestOpaque(t *testing.T) {
	t.Parallel()
	fn := keyfunc.Opaque("idempotency-key")
	for line, want := range map[string]string{
		"abc": "abc", `"abc"`: `"abc"`, `"abc`: `"abc`, "a,b;c=d": "a,b;c=d", ` \t"a" \t`: `"a"`, `\`: `\`, "a b": "a b",
		strings.Repeat("k", 255): strings.Repeat("k", 255),
	} {
		expect(t, fn, withKey(strings.ReplaceAll(line, `\t`, "\t")), want, nil)
	}
	for _, line := range []string{"", " ", "\t", "a\tb", "é", "\x7f", "a\x00", strings.Repeat("k", 256)} {
		expect(t, fn, withKey(line), "", keyfunc.ErrInvalid)
	}
	expect(t, fn, withKey("a", "a"), "", keyfunc.ErrInvalid)
	expect(t, fn, withKey(), "", keyfunc.ErrMissing)
	expect(t, fn, withKey([]string{}...), "", keyfunc.ErrMissing)
}

// FuzzOpaque: a key is what was sent, without the white space around it, or an error that does not repeat it.
func FuzzOpaque(f *testing.F) {
	for _, seed := range []string{"abc", `"abc"`, " a ", "é", "\x00"} {
		f.Add(seed)
	}
	fn := keyfunc.Opaque("Idempotency-Key")
	f.Fuzz(func(t *testing.T, line string) {
		got, err := fn(withKey(line))
		switch {
		case err == nil && (got == "" || len(got) > 255 || got != strings.Trim(line, " \t")):
			t.Fatalf("%q: %q", line, got)
		case err != nil && (got != "" || !errors.Is(err, keyfunc.ErrInvalid)):
			t.Fatalf("%q: %q, %v", line, got, err)
		}
	})
}

// Scoped has Standard's keys and errors, from another source. The key comes first.
func TestScoped(t *testing.T) {
	t.Parallel()
	user := keyfunc.User(currentUser)
	r := as(withKey("abc"), "42")
	want, err := keyfunc.Standard(user)(r)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, keyfunc.Scoped(keyfunc.Opaque("Idempotency-Key"), user), r, want, nil)
	for name, c := range map[string]struct {
		key, user keyfunc.Func
		want      error
	}{
		"no key, no user": {keyfunc.Opaque("X-Key"), user, keyfunc.ErrMissing},
		"no user":         {keyfunc.Opaque("Idempotency-Key"), user, keyfunc.ErrNoUser},
		"a missing user":  {keyfunc.Opaque("Idempotency-Key"), keyfunc.Query("user"), keyfunc.ErrNoUser},
	} {
		_, err := keyfunc.Scoped(c.key, c.user)(withKey("abc"))
		if !errors.Is(err, c.want) || c.want == keyfunc.ErrNoUser && errors.Is(err, keyfunc.ErrMissing) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// An API whose documentation calls keys opaque strings.
func ExampleOpaque() {
	opaque, draft := keyfunc.Opaque("Idempotency-Key"), keyfunc.Header("Idempotency-Key")
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", `"abc"`)
	fmt.Println(opaque(r))
	fmt.Println(draft(r))
	// Output:
	// "abc" <nil>
	// abc <nil>
}

// A form has the key in a hidden field, and the API's clients have it in the header.
func ExampleScoped() {
	source := keyfunc.First(keyfunc.Form("idempotency_key"), keyfunc.Header("Idempotency-Key"))
	key := keyfunc.Scoped(source, keyfunc.BasicUser())

	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("idempotency_key=8e03978e"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("ann", "")
	got, _ := key(r)
	fmt.Println(got == keyfunc.StandardKey("ann", "POST", "/orders", "8e03978e"))
	// Output: true
}
