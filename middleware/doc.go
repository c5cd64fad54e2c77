// Package middleware makes HTTP handlers safe against double submission: see [Idempotency].
//
// A protected handler controls its own run through [FromContext]: it can keep a response, discard it, or say that it does
// not know the outcome. [WithObserver] gets one [Event] for each request. Error responses are a [Problem].
//
// # Words
//
//   - A run is one call of the handler under a key that its request has taken.
//   - A duplicate is a request whose key another request has, or had.
//   - A record is a response as it is stored; a replay is the answer made of it.
//   - A tombstone is a record without the response: the request was processed, and cannot be replayed.
//   - A fingerprint tells two requests with one key apart.
//   - The retention is how long a record is kept.
//
// # Where to read
//
// serve, in idempotency.go, and run, in run.go, tell the story of [Idempotency] with its step numbers. A step that refuses
// a request returns an answer; call.answer alone writes it. internal/capture has the ResponseWriter that holds a response back.
// In internal, record is the stored format, response a response as a value, and buffer memory that is used again.
package middleware
