package main

import (
	"encoding/json"
	"net/http"

	"github.com/onceguard/onceguard/middleware"
)

// writeProblem answers in the format of the middleware's own refusals (RFC 9457). The type about:blank means that the
// problem has no semantics beyond its status.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Cache-Control", "no-store")
	write(w, "application/problem+json", status, middleware.Problem{
		Type:   "about:blank",
		Title:  http.StatusText(status),
		Status: status,
		Detail: detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	write(w, "application/json", status, v)
}

func write(w http.ResponseWriter, contentType string, status int, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // all values here can be encoded; the client may have disconnected
}
