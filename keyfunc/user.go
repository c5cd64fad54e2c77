package keyfunc

import (
	"context"
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/internal/option"
)

// User returns the id of the authenticated user. fn reads it from the request's context, where the authentication
// middleware has put it: mount that middleware outside.
//
// The id must be stable. Do not use a session or an access token: two attempts, with a refresh between them, would be
// two requests.
//
// ErrNoUser: fn returned "". User panics when fn is nil. The Func is safe for concurrent use if fn is.
func User(fn func(context.Context) string) Func {
	option.Check(fn != nil, "keyfunc.User: fn is nil")
	return func(r *http.Request) (string, error) {
		id := fn(r.Context())
		if id == "" {
			return "", ErrNoUser
		}
		return id, nil
	}
}

// BasicUser returns the user name of HTTP Basic authentication, RFC 7617. It does not check the password: mount a
// middleware that checks it outside, or any client can get another's responses.
//
// ErrNoUser: the request has no Basic credentials, or the user name is empty or has control characters, which RFC 7617,
// section 2, forbids. The Func is safe for concurrent use.
func BasicUser() Func {
	return func(r *http.Request) (string, error) {
		name, _, ok := r.BasicAuth()
		isControl := func(c rune) bool { return c < ' ' || c == 0x7f }
		if !ok || name == "" || strings.ContainsFunc(name, isControl) {
			return "", ErrNoUser
		}
		return name, nil
	}
}

// Anonymous puts all clients into one scope: a client that sends another's key gets that client's response. Use it
// instead of a user if there are no users, or if keys are secrets that other clients cannot guess.
//
// The key is a constant that begins with NUL, so it differs from any id that a person can type. Anonymous returns no
// error. The Func is safe for concurrent use.
func Anonymous() Func {
	return func(*http.Request) (string, error) { return "\x00anonymous", nil }
}
