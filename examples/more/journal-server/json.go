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
	_ = write(w, "application/problem+json", status,
		middleware.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail})
}

// writeJSON returns an error if not all could be written. A transaction must then be rolled back.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	return write(w, "application/json", status, v)
}

func write(w http.ResponseWriter, contentType string, status int, v any) error {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}
