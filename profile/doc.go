// Package profile has the idempotency rules of APIs that are specified elsewhere: the Agentic Commerce Protocol (ACP), the
// Universal Commerce Protocol (UCP), and the API of Stripe. A [Profile] is a key function and an option for package
// middleware:
//
//	acp := profile.ACP()
//	once := middleware.Idempotency(locker, acp.Key(caller), acp.Option())
//	mux.Handle("POST /checkout_sessions", once(create))
//
// The option sets the options of package middleware that the rules call for. An option after it overrides what it sets.
//
// # The rules
//
//	                 default              ACP                   UCP                  Stripe
//	methods          POST, PATCH          POST                  POST, PUT            POST
//	key              optional, RFC 9651   required, opaque      optional, opaque     optional, opaque
//	scope of a key   user, method, path   user, method, path    user, method, path   user
//	same request     route, query, media  JSON values of the    bytes of the body    route, query, media
//	                 type, body           body                                       type, body
//	stored           StoreDefault         every status < 500    StoreDefault         every status
//	for              24 h                 24 h                  48 h                 24 h
//	key echoed       no                   yes                   no                   yes
//
// The scope of ACP is the identity and the path of the endpoint, and that of UCP the client and the kind of operation. Both
// are ours with the method, which decides nothing more: a path of either has one method that is protected. In UCP's paths the
// id of the checkout is in our scope too, so one key sent to two checkouts means two requests.
//
// The option that compares bodies alone also compares the route. So whatever the key function is, no response is replayed to
// another operation.
//
// # Problems
//
// Each problem of package middleware, by its type, with the status, type and code that the profile gives it. The defaults are
// in docs/reference.md. Where the rules name no code, it is ours. An error of UCP has no type, and one of Stripe for a
// mismatch has no code.
//
//	problem              ACP                                               UCP   Stripe
//	key-missing          400 invalid_request idempotency_key_required      400   400 invalid_request_error idempotency_key_required
//	key-invalid          400 invalid_request idempotency_key_invalid       400   400 invalid_request_error idempotency_key_invalid
//	key-expired          400 invalid_request idempotency_key_expired       400   400 invalid_request_error idempotency_key_expired
//	body-unreadable      400 invalid_request body_unreadable               400   400 invalid_request_error body_unreadable
//	user-unknown         401 invalid_request user_unknown                  401   401 invalid_request_error user_unknown
//	in-flight            409 invalid_request idempotency_in_flight         409   409 idempotency_error idempotency_key_in_use
//	run-failed           503 service_unavailable run_failed                503   503 api_error run_failed
//	outcome-unknown      409 processing_error outcome_unknown              409   409 idempotency_error outcome_unknown
//	response-not-stored  409 processing_error response_not_stored          409   409 idempotency_error response_not_stored
//	fingerprint-changed  409 processing_error fingerprint_changed          409   409 idempotency_error fingerprint_changed
//	body-too-large       413 invalid_request body_too_large                413   413 invalid_request_error body_too_large
//	key-reused           422 invalid_request idempotency_conflict          409   400 idempotency_error
//	key-failed           500 processing_error key_failed                   500   500 api_error key_failed
//	record-unreadable    500 processing_error record_unreadable            500   500 api_error record_unreadable
//	store-unavailable    503 service_unavailable store_unavailable         503   503 api_error store_unavailable
//	commit-unknown       503 service_unavailable commit_unknown            503   503 api_error commit_unknown
//
// UCP has the codes of ACP. Each has Retry-After and X-Should-Retry as by default. A browser gets JSON, too.
//
// # Which texts
//
// Each constructor names the text that it follows, and so does [Profile.String]. ACP and UCP are drafts: a later text may
// change the answers of its profile in a minor version of this module, or get a constructor of its own.
package profile
