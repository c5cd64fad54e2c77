package main

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/keyfunc"
)

type userKey struct{}

// user returns the user that requireUser or requireVisitor has found, or "".
func user(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func withUser(r *http.Request, name string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, name))
}

// requireUser takes the user name of HTTP Basic and ignores the password, so that curl can act as two users. It is not
// authentication: do not copy it. Do copy its place, outside of Idempotency, and the stable id that it puts into the
// context.
func requireUser(next http.Handler) http.Handler {
	basic := keyfunc.BasicUser()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, err := basic(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="payments", charset="UTF-8"`)
			writeProblem(w, http.StatusUnauthorized, "Authenticate by HTTP Basic, with any user name and any password.")
			return
		}
		next.ServeHTTP(w, withUser(r, name))
	})
}

// requireVisitor gives each browser a random id in a cookie, so that no visitor sees another's orders. A request that
// changes something must bring the cookie: if each click of a double click got an id of its own, they would be the
// clicks of two users, with two keys. In a shop with a login, requireUser is all that you need.
func requireVisitor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie("visitor")
		switch {
		case err == nil && uuid.Validate(cookie.Value) == nil:
		case r.Method == http.MethodPost:
			http.Error(w, "Your browser did not send the cookie of this shop.", http.StatusForbidden)
			return
		default:
			cookie = &http.Cookie{Name: "visitor", Value: uuid.NewString(), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}
			http.SetCookie(w, cookie)
		}
		next.ServeHTTP(w, withUser(r, cookie.Value))
	})
}
