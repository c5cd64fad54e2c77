package keyfunc_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

var errElse = errors.New("something else")

func TestFirst(t *testing.T) {
	t.Parallel()
	missing := answer("", fmt.Errorf("no field: %w", keyfunc.ErrMissing))
	cases := []struct {
		name string
		fns  []keyfunc.Func
		want string
		err  error
	}{
		{"the first", []keyfunc.Func{answer("a", nil), answer("b", nil)}, "a", nil},
		{"the second", []keyfunc.Func{missing, answer("b", nil)}, "b", nil},
		{"none", []keyfunc.Func{missing, missing}, "", keyfunc.ErrMissing},
		{"invalid is not missing", []keyfunc.Func{missing, answer("", keyfunc.ErrInvalid), answer("b", nil)}, "", keyfunc.ErrInvalid},
		{"no user is not missing", []keyfunc.Func{answer("", keyfunc.ErrNoUser), answer("b", nil)}, "", keyfunc.ErrNoUser},
		{"nor is anything else", []keyfunc.Func{answer("", errElse), answer("b", nil)}, "", errElse},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			expect(t, keyfunc.First(c.fns...), post("/"), c.want, c.err)
		})
	}
}

func compose(t *testing.T, parts ...string) string {
	t.Helper()
	fns := make([]keyfunc.Func, len(parts))
	for i, p := range parts {
		fns[i] = answer(p, nil)
	}
	key, err := keyfunc.Compose(fns...)(post("/"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// conformance: 32, as far as keys go
func TestComposeIsInjective(t *testing.T) {
	t.Parallel()
	lists := [][]string{
		{""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"a", "b:c"}, {"a:b", "c"}, {"a:b:c"}, {"a", "b", "c"},
		{"1:a"}, {"1:a1:b"}, {"1:a", "1:b"}, {"0:"}, {"0:", "0:"}, {strings.Repeat("a", 300)}, {strings.Repeat("a", 150), strings.Repeat("a", 150)},
		{compose(t, "a", "b"), "c"}, {"a", compose(t, "b", "c")}, {compose(t, "a", "b", "c")},
	}
	seen := map[string][]string{}
	for _, list := range lists {
		key := compose(t, list...)
		if other, taken := seen[key]; taken {
			t.Errorf("%q and %q have the same key", list, other)
		}
		seen[key] = list
	}
}

func TestComposeStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	never := keyfunc.Func(func(*http.Request) (string, error) {
		t.Error("asked")
		return "", nil
	})
	fn := keyfunc.Compose(answer("a", nil), answer("b", errElse), never)
	got, err := fn(post("/"))
	if got != "" || err != errElse {
		t.Errorf("got %q, %v, want the error as it is", got, err)
	}
}

func TestFunctionsAreCopied(t *testing.T) {
	t.Parallel()
	fns := []keyfunc.Func{answer("a", nil)}
	first, composed := keyfunc.First(fns...), keyfunc.Compose(fns...)
	want := compose(t, "a")
	fns[0] = answer("b", nil)
	expect(t, first, post("/"), "a", nil)
	expect(t, composed, post("/"), want, nil)
}

// FuzzCompose makes two lists by cutting two strings up. Their keys must be equal if and only if the lists
// are, and the key alone must be enough to find its list again.
func FuzzCompose(f *testing.F) {
	f.Add("a|b:c", "a:b|c", "|")
	f.Add("1:a1:b", "1:a|1:b", "|")
	f.Add("", "|", "|")
	f.Add("10:aaaaaaaaaa", "aaaaaaaaaa", "0")
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
			t.Fatalf("%q was made of %q, and decodes to %q", keyA, listA, got)
		}
	})
}

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
