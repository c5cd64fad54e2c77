package main

import (
	"context"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
)

type userKey struct{}

// requireUser takes the user name of HTTP Basic for the user, whatever the password is. It is here so that curl can play two
// users; it proves nothing, so do not copy it. What is worth copying is where it stands, and that it leaves a stable id behind.
func requireUser(next http.Handler) http.Handler {
	basic := keyfunc.BasicUser()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := basic(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="payments", charset="UTF-8"`)
			writeProblem(w, http.StatusUnauthorized, "Say who you are by HTTP Basic: any user name, any password.")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// userID returns the user that requireUser has let in, empty without one.
func userID(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
