package main

import (
	"context"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
)

type userKey struct{}

// requireUser takes the user name of HTTP Basic and ignores the password, so that curl can act as two users. It is not
// authentication: do not copy it. Do copy its place, outside of Idempotency, and the stable id that it puts into the
// context.
func requireUser(next http.Handler) http.Handler {
	basic := keyfunc.BasicUser()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := basic(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="payments", charset="UTF-8"`)
			writeProblem(w, http.StatusUnauthorized, "Authenticate by HTTP Basic, with any user name and any password.")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// userID returns the user that requireUser found, or "".
func userID(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
