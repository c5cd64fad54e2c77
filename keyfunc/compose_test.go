package keyfunc_test

import (
	"errors"
	"fmt"
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
	cases := []struct {
		name string
		fns  []keyfunc.Func
		want string
		err  error
	}{
		{"the first", []keyfunc.Func{fixed("a", nil), fixed("b", nil)}, "a", nil},
		{"the second", []keyfunc.Func{missing, fixed("b", nil)}, "b", nil},
		{"none", []keyfunc.Func{missing, missing}, "", keyfunc.ErrMissing},
		{"invalid is not missing", []keyfunc.Func{missing, fixed("", keyfunc.ErrInvalid), fixed("b", nil)}, "", keyfunc.ErrInvalid},
		{"no user is not missing", []keyfunc.Func{fixed("", keyfunc.ErrNoUser), fixed("b", nil)}, "", keyfunc.ErrNoUser},
		{"other errors are not missing", []keyfunc.Func{fixed("", errOther), fixed("b", nil)}, "", errOther},
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
		fns[i] = fixed(p, nil)
	}
	key, err := keyfunc.Compose(fns...)(post("/"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// conformance: 32, for keys
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

// FuzzCompose splits two strings into lists. Their keys must be equal if and only if the lists are, and each list must
// be decodable from its key.
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
