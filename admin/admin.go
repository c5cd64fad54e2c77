// Package admin is a page for operators: it shows what a key holds, and frees a key whose request is stuck. It is an
// http.Handler for the part of your service that only your staff can reach.
//
//	page := admin.Handler(locker, isOperator, audit)
//	mux.Handle("/internal/idempotency", requireLogin(page))
//
// The page takes the key as logs and problem documents show it: the storage key, or "urn:onceguard:key:" and 64 digits.
// It never shows the client's key, the request or the response: neither is read.
//
// To free a key means that the next request with it runs the handler again. Find out before whether the work has
// happened, in the ledger of your service or at its provider. If it has, leave the key as it is, or store the outcome.
//
// Where middleware.WithJournal is in use, the page shows and frees what is in Redis. What the journal has stands, and
// answers the next request.
package admin

import (
	"net/http"

	"github.com/onceguard/onceguard/lock"
)

// Action is what an operator does.
type Action string

const (
	Inspect Action = "inspect" // look at a key
	Forget  Action = "forget"  // free a key: remove the claim or the value that was looked at
)

// Entry is one line of the audit trail: who did it is in the request that comes with it.
type Entry struct {
	Action     Action
	Key        string // as it stands in Redis, or as the operator has typed it if it is no such key; at most 300 bytes
	Token      string // Forget: names the claim or value that was looked at (lock.Info.Token); at most 100 bytes
	Reason     string // Forget: the operator's, 1 to 500 characters in one line
	EvenIfLive bool   // Forget: also if the run may be at work (WithLive)

	Done bool  // it was tried: false before, true after
	Err  error // Done: why it failed; nil if it succeeded
}

// Option changes a default of [Handler].
type Option func(*page)

// WithLive also lets an operator free a key whose run may still be at work, by a box to tick. By default the page
// refuses that: another request can run beside the first, and both take effect.
func WithLive() Option { return func(p *page) { p.live = true } }

// Handler returns the page. It panics when locker, allow, audit or an option is nil. The Handler, and so allow and
// audit, may be called concurrently.
//
// allow reports whether the request comes from somebody who may do this. It is asked for each request, the empty page
// included, and a request that it refuses gets 403. Authentication is your business: mount the page behind it.
//
// audit is called twice for each look-up and each change: before, with Done false, when an error keeps it from being
// done and answers 503; and after, with Done true and the result. If that call fails, the page says that it was done
// and not recorded. An error's text is not shown.
//
// The page is served on whatever path it is mounted on. GET shows the form. A key is never in a URL, where logs and
// histories would keep it: look-ups and changes are POST, and a request with a query is answered with 400. A POST from
// another site is refused by [http.CrossOriginProtection], which knows browsers by Sec-Fetch-Site and Origin. A change
// names the claim or value that was looked at; if the key holds another one by then, nothing is changed.
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
	return p
}
