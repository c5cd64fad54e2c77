package main

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

type visitorKey struct{}

const visitorCookie = "visitor"

// requireVisitor gives each browser a random id in a cookie, so that no visitor sees another's orders. A request that
// changes something must bring the cookie: if each click of a double click got an id of its own, they would be the
// clicks of two users, with two keys. In a shop with a login, requireUser is all that you need.
func requireVisitor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := ""
		if cookie, err := r.Cookie(visitorCookie); err == nil && len(cookie.Value) == 36 && uuid.Validate(cookie.Value) == nil {
			id = cookie.Value
		}
		if id == "" && r.Method == http.MethodPost {
			render(w, http.StatusForbidden, "cookie", nil)
			return
		}
		if id == "" {
			id = uuid.NewString()
			http.SetCookie(w, &http.Cookie{
				Name:     visitorCookie,
				Value:    id,
				Path:     "/",
				MaxAge:   int(24 * time.Hour / time.Second),
				HttpOnly: true,
				SameSite: http.SameSiteLaxMode,
				Secure:   r.TLS != nil,
			})
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, id)))
	})
}

// visitorID returns the id that requireVisitor found, or "".
func visitorID(ctx context.Context) string {
	id, _ := ctx.Value(visitorKey{}).(string)
	return id
}
