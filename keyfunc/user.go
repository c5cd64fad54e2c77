package keyfunc

import (
	"context"
	"net/http"
)

// User takes the authenticated user from the request's context, where the authentication middleware
// left it: mount that middleware outside.
//
// What fn returns must be a stable id, never a credential. A session or access token that is
// refreshed between two tries would make them two requests.
//
// ErrNoUser: fn returned "". User panics when fn is nil. The Func is safe for concurrent use if fn is.
func User(fn func(context.Context) string) Func {
	if fn == nil {
		panic("keyfunc.User: fn is nil")
	}
	return func(r *http.Request) (string, error) {
		id := fn(r.Context())
		if id == "" {
			return "", ErrNoUser
		}
		return id, nil
	}
}

// BasicUser is the user name of HTTP Basic authentication, RFC 7617. It does not look at the password: mount the
// middleware that checks it outside, or anybody can get the responses of anybody else.
//
// ErrNoUser: there are no Basic credentials, or the user name is empty or has control characters,
// which RFC 7617, section 2, forbids. The Func is safe for concurrent use.
func BasicUser() Func {
	return func(r *http.Request) (string, error) {
		name, _, ok := r.BasicAuth()
		if !ok || name == "" {
			return "", ErrNoUser
		}
		for i := range len(name) {
			if name[i] < ' ' || name[i] == 0x7f {
				return "", ErrNoUser
			}
		}
		return name, nil
	}
}

// Anonymous puts everybody into one scope: a client that sends a key which another one has used gets
// that client's response. It stands in the place of a user, where there are no users or where
// keys are secrets that nobody else can guess, and says so in the code.
//
// The key is a constant that begins with a NUL, which no id that a person can type does. There is no error. The Func
// is safe for concurrent use.
func Anonymous() Func {
	return func(*http.Request) (string, error) { return "\x00anonymous", nil }
}
