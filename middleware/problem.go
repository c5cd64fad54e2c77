package middleware

import "time"

// Problem is an error response in the terms of RFC 9457. All problems of one Type have the same Title, Status and
// Retryable. docs/reference.md lists the types.
type Problem struct {
	Type           string `json:"type"` // an absolute URI: "urn:onceguard:problem:" and a name
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Detail         string `json:"detail"`                    // what the client may do; contains nothing that the client sent
	Instance       string `json:"instance,omitempty"`        // "urn:onceguard:key:" and the storage key's hash (64 hex digits); empty without a key
	OriginalStatus int    `json:"original_status,omitempty"` // of a response that was not stored; 0 if it, or the outcome, is unknown

	// Of key-reused: whether the request that has the key still runs, or when it ended, by the wall clock of the process
	// that ran it, in UTC and whole milliseconds. FirstEnded is nil, and FirstRunning false, if it is not known how it ended.
	FirstRunning bool       `json:"first_running,omitempty"`
	FirstEnded   *time.Time `json:"first_ended,omitempty"`

	// Retryable reports whether the same request may succeed later. It is sent as X-Should-Retry. The SDKs that
	// Stainless generates (OpenAI's and Anthropic's among others) obey that header, whatever the status is.
	Retryable bool `json:"-"`
	// RetryAfter is sent as Retry-After (RFC 9110 section 10.2.3), in whole seconds. It is 0 when Retryable is false.
	RetryAfter time.Duration `json:"-"`
}
