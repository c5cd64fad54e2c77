// Package middleware makes HTTP handlers safe against double submission: see [Idempotency].
//
// What a protected handler can ask and say is in [FromContext]. What came of each request is told to the observer as an
// [Event]. Error responses are a [Problem].
package middleware
