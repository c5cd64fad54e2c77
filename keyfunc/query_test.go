package keyfunc_test

import (
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	cases := []struct {
		name, target string
		want         string
		err          error
	}{
		{"plain", "/orders?item=1&key=abc", "abc", nil},
		{"decoded", "/orders?key=a+b%2Cc", "a b,c", nil},
		{"the last printable character", "/orders?key=~", "~", nil},
		{"255", "/orders?key=" + a(255), a(255), nil},
		{"256", "/orders?key=" + a(256), "", keyfunc.ErrInvalid},
		{"no query", "/orders", "", keyfunc.ErrMissing},
		{"absent", "/orders?item=1", "", keyfunc.ErrMissing},
		{"other case", "/orders?Key=abc", "", keyfunc.ErrMissing},
		{"empty", "/orders?key=", "", keyfunc.ErrInvalid},
		{"no value", "/orders?key", "", keyfunc.ErrInvalid},
		{"twice", "/orders?key=abc&key=abc", "", keyfunc.ErrInvalid},
		{"not ASCII", "/orders?key=k%C3%A4se", "", keyfunc.ErrInvalid},
		{"control character", "/orders?key=a%00b", "", keyfunc.ErrInvalid},
		{"malformed elsewhere", "/orders?key=abc&item=%zz", "", keyfunc.ErrInvalid},
		{"semicolon", "/orders?item=1;key=abc", "", keyfunc.ErrInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			expect(t, keyfunc.Query("key"), post(c.target), c.want, c.err)
		})
	}
}
