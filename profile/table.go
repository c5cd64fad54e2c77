package profile

// answer is what a client gets for a problem.
type answer struct {
	status     int
	kind, code string // the error's type and code; empty if it has none
}

// row has the answers to one problem of package middleware.
type row struct{ acp, ucp, stripe answer }

// The types of errors.
const (
	// Of ACP, section 3.1.
	invalid, processing, unavailable = "invalid_request", "processing_error", "service_unavailable"
	// Of Stripe.
	request, idempotency, api = "invalid_request_error", "idempotency_error", "api_error"
)

// table has a row for each problem, by its type without its prefix.
var table = map[string]row{
	"key-missing":     same(400, invalid, request, "idempotency_key_required"),
	"key-invalid":     same(400, invalid, request, "idempotency_key_invalid"),
	"key-expired":     same(400, invalid, request, "idempotency_key_expired"),
	"body-unreadable": same(400, invalid, request, "body_unreadable"),
	"user-unknown":    same(401, invalid, request, "user_unknown"),
	"in-flight": {
		answer{409, invalid, "idempotency_in_flight"},
		answer{409, "", "idempotency_in_flight"},
		answer{409, idempotency, "idempotency_key_in_use"},
	},
	"run-failed":          same(503, unavailable, api, "run_failed"),
	"outcome-unknown":     same(409, processing, idempotency, "outcome_unknown"),
	"response-not-stored": same(409, processing, idempotency, "response_not_stored"),
	"fingerprint-changed": same(409, processing, idempotency, "fingerprint_changed"),
	"body-too-large":      same(413, invalid, request, "body_too_large"),
	"key-reused": {
		answer{422, invalid, "idempotency_conflict"},
		answer{409, "", "idempotency_conflict"},
		answer{400, idempotency, ""},
	},
	"key-failed":        same(500, processing, api, "key_failed"),
	"record-unreadable": same(500, processing, api, "record_unreadable"),
	"store-unavailable": same(503, unavailable, api, "store_unavailable"),
	"commit-unknown":    same(503, unavailable, api, "commit_unknown"),
}

// same returns the row of a problem with one status and one code.
func same(status int, acpType, stripeType, code string) row {
	return row{answer{status, acpType, code}, answer{status, "", code}, answer{status, stripeType, code}}
}

// messages replace the details of problems that do not fit to opaque keys.
var messages = map[string]string{
	"key-invalid": "An idempotency key has 1 to 255 printable ASCII characters and must be sent exactly once.",
}

// details are an error of ACP, and a part of one of Stripe.
type details struct {
	Type    string `json:"type"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}
