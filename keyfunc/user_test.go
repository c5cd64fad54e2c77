package keyfunc_test

import (
	"context"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
)

func TestUser(t *testing.T) {
	t.Parallel()
	expect(t, keyfunc.User(currentUser), as(post("/"), "42"), "42", nil)
	expect(t, keyfunc.User(currentUser), as(post("/"), ""), "", keyfunc.ErrNoUser)
	expect(t, keyfunc.User(func(context.Context) string { return "" }), post("/"), "", keyfunc.ErrNoUser)
}

func TestBasicUser(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, user string
		want       string
		err        error
	}{
		{"plain", "ada", "ada", nil},
		{"not ASCII", "zoë", "zoë", nil},
		{"a space", "ada l", "ada l", nil},
		{"empty", "", "", keyfunc.ErrNoUser},
		{"NUL", "\x00anonymous", "", keyfunc.ErrNoUser},
		{"DEL", "a\x7f", "", keyfunc.ErrNoUser},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := post("/")
			r.SetBasicAuth(c.user, "any password")
			expect(t, keyfunc.BasicUser(), r, c.want, c.err)
		})
	}
	for _, authorization := range []string{"", "Bearer abc", "Basic", "Basic !", "Basic YWRh"} {
		r := post("/")
		r.Header.Set("Authorization", authorization)
		expect(t, keyfunc.BasicUser(), r, "", keyfunc.ErrNoUser)
	}
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	a, err := keyfunc.Anonymous()(as(post("/a"), "42"))
	if err != nil || !strings.HasPrefix(a, "\x00") {
		t.Errorf("got %q, %v, want a key that begins with NUL", a, err)
	}
	expect(t, keyfunc.Anonymous(), post("/b"), a, nil)
}
