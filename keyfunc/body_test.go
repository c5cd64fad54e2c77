package keyfunc_test

import (
	"regexp"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

// conformance: 30, 31, for keys derived from the body
func TestBody(t *testing.T) {
	t.Parallel()
	const json = "application/json"
	key := func(contentType, body string) string {
		t.Helper()
		r := withBody(contentType, body)
		got, err := keyfunc.Body()(r)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, keyfunc.Body(), r, got, nil)
		expectBody(t, r, body)
		return got
	}
	one := key(json, `{"item":1}`)
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(one) {
		t.Errorf("key = %q, want 64 hex digits", one)
	}
	first := key(multi("first", part("item", "1"), filePart("photo", "png")))

	same := []struct{ name, got, want string }{
		{"parameters of the type", key("Application/JSON; charset=utf-8", `{"item":1}`), one},
		{"another boundary", key(multi("second", part("item", "1"), filePart("photo", "png"))), first},
	}
	for _, c := range same {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}

	different := map[string]string{
		"one":           one,
		"first":         first,
		"another body":  key(json, `{"item":2}`),
		"another type":  key("text/plain", `{"item":1}`),
		"no type":       key("", `{"item":1}`),
		"empty":         key(json, ""),
		"another part":  key(multi("first", part("item", "2"), filePart("photo", "png"))),
		"another order": key(multi("first", filePart("photo", "png"), part("item", "1"))),
		"one part less": key(multi("first", part("item", "1"))),
		"no boundary":   key("multipart/form-data", "--first--\r\n"),
	}
	names := map[string]string{}
	for name, k := range different {
		if other, taken := names[k]; taken {
			t.Errorf("%s and %s have the same key", name, other)
		}
		names[k] = name
	}
}
