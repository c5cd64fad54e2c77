package main

import (
	"encoding/json"
	"net/http"

	"github.com/onceguard/onceguard/profile"
)

// protocol is what differs between the APIs.
type protocol struct {
	rules        profile.Profile
	sessions     string // the path of checkouts
	updateMethod string
	ready        string // the status of a checkout that can be completed
	ended        int    // the HTTP status if a checkout is completed or canceled already
	failure      func(code, message string) any
}

var protocols = map[string]protocol{
	"acp": {
		profile.ACP(), "/checkout_sessions", http.MethodPost, "ready_for_payment", http.StatusMethodNotAllowed,
		func(code, message string) any {
			return map[string]string{"type": "invalid_request", "code": code, "message": message}
		},
	},
	"ucp": {
		profile.UCP(), "/checkout-sessions", http.MethodPut, "ready_for_complete", http.StatusConflict,
		func(code, message string) any { return map[string]string{"code": code, "content": message} },
	},
}

// writeJSON returns an error if not all could be written. A transaction must then be rolled back.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}
