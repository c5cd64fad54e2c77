// Package admin has a page for operators: it shows what a key holds, and frees or resolves a key whose request is stuck.
// It is an http.Handler for the part of your service that only your staff can reach.
//
//	page := admin.Handler(locker, isOperator, audit, admin.WithMiddleware(once))
//	mux.Handle("/internal/idempotency", requireLogin(page))
//
// The page takes a key as logs and problems show it: the storage key, or "urn:onceguard:key:" and 64 digits. It never
// shows the client's key, the request, or the header and body of the response.
//
// After a key is freed, the next request with it runs the handler again. So an operator first finds out whether the
// work has happened, in the service's ledger or at its provider: the page asks for that. If it has happened, the
// operator leaves the key as it is, or stores what retries get, with [WithResolve] or the command onceguard resolve: a
// response or, for package once, a value or an error. This also works after a sweep of the journal has ended a run
// without a response.
//
// The page lists nothing: the command onceguard scan lists the keys that are held or abandoned, and the responses with a
// status, such as each 503 of an outage.
//
// With middleware.WithJournal the page needs [WithMiddleware]. Otherwise it shows and frees only what is in Redis,
// while the journal decides about the next request: the page shows a key that only the journal knows as free. With
// WithMiddleware the page also works without Redis (lock.None).
package admin

import (
	"net/http"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// What an operator does on the page.
const (
	inspect = "inspect"
	forget  = "forget"
	resolve = "resolve"
)

// Entry is one entry of the audit trail. The request that comes with it tells who the operator is. Key, Token and
// Reason are one line of UTF-8, without control characters and those that change the direction of text: the page
// refuses a form that has them, and does not call audit.
type Entry struct {
	// Action is "inspect", which looks at a key, "forget", which frees it by removing the claim or the value that was looked
	// at, or "resolve", which stores what retries get of a run whose outcome is unknown ([WithResolve]).
	Action string

	Key        string // as Redis has it, or what the operator has entered instead; at most 300 bytes
	Token      string // forget, resolve: names what the operator saw; at most 100 bytes
	Reason     string // forget, resolve: the operator's, 1 to 500 characters
	Status     int    // resolve: the response's; 0 for a function
	BodySHA256 string // resolve: SHA-256 of the response's body, the value or the error's text, in hex

	Done bool  // false before the action is tried, true after
	Err  error // if Done: why the action failed; nil if it succeeded
}

// Option changes a default of [Handler].
type Option func(*page)

// WithMiddleware gives the page the service's own Middleware. The page then also shows the stored response and the
// journal's row, and frees a key in the journal too. By default it has Redis alone. WithMiddleware panics if m is nil.
func WithMiddleware(m *middleware.Middleware) Option {
	if m == nil {
		panic("admin.WithMiddleware: the Middleware is nil")
	}
	return func(p *page) { p.once = m }
}

// WithResolve adds a form by which an operator stores a response, or a function's error or value (as JSON), for a run
// whose outcome is unknown, or which a sweep has ended without a response: see middleware.Middleware.Resolve. It is off
// by default, because it lets an operator forge: the client cannot tell such a response from one of the service. For a
// function the Middleware needs the Guard's encryption keys, and stores for its own retention. Handler panics if
// WithMiddleware is missing.
func WithResolve() Option { return func(p *page) { p.resolves = true } }

// Handler returns the page. It panics if locker, allow, audit or an option is nil, and if locker is lock.None without
// [WithMiddleware]. The page may be called concurrently, and calls allow and audit concurrently.
//
// allow reports whether the request comes from an operator. The page calls it for each request, also for the empty
// form, and answers 403 if it returns false. The page does no authentication: mount it behind yours.
//
// The page calls audit before and after each look-up and each change. A look-up also follows a change that was refused
// or failed. Before, Done is false: if audit returns an error, the page does nothing and answers 503. After, Done is
// true, and Err has the result: if audit returns an error, the page shows that the action was done and not recorded. It
// does not show the error's text.
//
// The page works on any path. GET shows the form. A key is never in a URL, where logs and histories would keep it:
// look-ups and changes are POST, and a request with a query gets 400. [http.CrossOriginProtection] refuses a POST from
// another site; it recognizes a browser's by Sec-Fetch-Site and Origin. A change names the claim or value that the
// operator saw. If the key now holds another one, the page changes nothing.
//
// All responses have Cache-Control: no-store, and a Content-Security-Policy that allows no script, and no frame around
// the page. The page works without JavaScript.
func Handler(
	locker *lock.Locker, allow func(*http.Request) bool, audit func(*http.Request, Entry) error, opts ...Option,
) http.Handler {
	switch {
	case locker == nil:
		panic("admin.Handler: locker is nil")
	case allow == nil:
		panic("admin.Handler: allow is nil")
	case audit == nil:
		panic("admin.Handler: audit is nil")
	}
	p := &page{locker: locker, allow: allow, audit: audit, origins: http.NewCrossOriginProtection()}
	for _, opt := range opts {
		if opt == nil {
			panic("admin.Handler: an option is nil")
		}
		opt(p)
	}
	if locker.IsNone() && p.once == nil {
		panic("admin.Handler: lock.None needs WithMiddleware")
	}
	if p.resolves && p.once == nil {
		panic("admin.Handler: WithResolve needs WithMiddleware")
	}
	return p
}
