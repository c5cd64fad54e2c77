// Package keyfunc derives the key of a request. Requests with the same key are one request to middleware.Idempotency:
// it runs the first, and answers the others with its response.
//
// A key function, a [Func], takes an *http.Request and returns a string of any length, or an error.
//
// # Which one to take
//
// Start with [Standard], for clients that send an Idempotency-Key header:
//
//	key := keyfunc.Standard(keyfunc.User(userID)) // func userID(ctx context.Context) string is yours
//
// The other functions are parts of a key. They differ in where the key comes from:
//
//   - [Header]: a header with a name of your choice.
//   - [Opaque]: a header whose value is the key as it stands, quotes included.
//   - [Form]: a hidden field of an HTML form. A form cannot set a header.
//   - [Query]: a parameter of the URL, for clients that can set neither.
//   - [JSON]: a value in a JSON body, such as the id of a webhook's event.
//   - [Body]: the body itself, for clients that send no key.
//   - [Host]: the host, if it selects the tenant.
//   - [Func]: your own code, for example the event id in a webhook's path.
//
// # One key for each operation and user
//
// Two users may choose the same key, and one user may send it to two operations. Those are different requests, so the
// whole key has three parts: the operation ([Route]), the user ([User] or [BasicUser]), and the client's key. Without
// the user, one user could get the response of another.
//
// If one user can act for several tenants or organizations, the id that User returns must include the active one. If
// the host selects the tenant, add [Host].
//
// Authentication comes first: mount it outside of the middleware. A request without a user gives an error, not
// an empty id that all such requests would share. For an API without users, use [Anonymous] instead of a user.
//
// # Putting parts together
//
// Standard joins those three parts, and [Scoped] does so with another source of the client's key. Use [Compose] to join
// other parts, and [First] to accept a key in several places:
//
//	source := keyfunc.First(keyfunc.Form("idempotency_key"), keyfunc.Header("Idempotency-Key"))
//	key := keyfunc.Scoped(source, keyfunc.User(userID))
//
// API clients send the header and browsers the form field. A request without a key fails before User is called.
//
// Form comes before Header, because some browsers add an Idempotency-Key of their own, a new one to each POST: Waterfox
// does, and Firefox can be set to. The form's field is the same in each submission of one page, and the header is not. A
// form without the field takes that header for its key: it passes WithRequired, and nothing protects it from being sent
// twice. So put the field into each form, and protect a route that only forms use with Form alone.
//
// # Errors
//
// Three errors mean that the request is at fault. Test for them with errors.Is. The middleware answers them so:
//
//   - [ErrMissing]: the request has no key. It passes unprotected, or with WithRequired gets 400. A [MissingError]
//     also names the place where the key belongs.
//   - [ErrInvalid]: the request has a key, but a malformed one: 400. It never passes unprotected.
//   - [ErrNoUser]: the request has no authenticated user: 401.
//
// Any other error means that the Func failed: 500, or 400 or 413 if the body could not be read. No error of this
// package contains the key.
//
// Every Func of this package is safe for concurrent use, provided that the functions passed to it are. A key is the
// client's text: hash it before you store or log it, as the middleware does.
package keyfunc
