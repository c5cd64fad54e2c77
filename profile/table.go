package profile

// answer is what a client gets for a problem.
type answer struct {
	status     int
	kind, code string // the error's type and code; empty if it has none
}

// row has the answers to one problem of package middleware.
type row struct {
	problem          string // its type, without its prefix
	acp, ucp, stripe answer
}

// The types of errors.
const (
	// Of ACP, section 3.1.
	invalid, processing, unavailable = "invalid_request", "processing_error", "service_unavailable"
	// Of Stripe.
	request, idempotency, api = "invalid_request_error", "idempotency_error", "api_error"
)

// table has a row for each problem.
var table = []row{
	same("key-missing", 400, invalid, request, "idempotency_key_required"),
	same("key-invalid", 400, invalid, request, "idempotency_key_invalid"),
	same("key-expired", 400, invalid, request, "idempotency_key_expired"),
	same("body-unreadable", 400, invalid, request, "body_unreadable"),
	same("user-unknown", 401, invalid, request, "user_unknown"),
	{
		"in-flight",
		answer{409, invalid, "idempotency_in_flight"},
		answer{409, "", "idempotency_in_flight"},
		answer{409, idempotency, "idempotency_key_in_use"},
	},
	same("run-failed", 503, unavailable, api, "run_failed"),
	same("outcome-unknown", 409, processing, idempotency, "outcome_unknown"),
	same("response-not-stored", 409, processing, idempotency, "response_not_stored"),
	same("fingerprint-changed", 409, processing, idempotency, "fingerprint_changed"),
	same("body-too-large", 413, invalid, request, "body_too_large"),
	{
		"key-reused",
		answer{422, invalid, "idempotency_conflict"},
		answer{409, "", "idempotency_conflict"},
		answer{400, idempotency, ""},
	},
	same("key-failed", 500, processing, api, "key_failed"),
	same("record-unreadable", 500, processing, api, "record_unreadable"),
	same("store-unavailable", 503, unavailable, api, "store_unavailable"),
	same("commit-unknown", 503, unavailable, api, "commit_unknown"),
}

// same returns the row of a problem with one status and one code.
func same(problem string, status int, acpType, stripeType, code string) row {
	return row{problem, answer{status, acpType, code}, answer{status, "", code}, answer{status, stripeType, code}}
}

// messages replace the details of problems that do not fit to opaque keys.
var messages = map[string]string{
	"key-invalid": "An idempotency key has 1 to 255 printable ASCII characters and must be sent exactly once.",
}

// The bodies of errors.
type (
	acpError struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	ucpError struct {
		Code    string `json:"code"`
		Content string `json:"content"`
	}
	stripeError struct {
		Error stripeDetails `json:"error"`
	}
	stripeDetails struct {
		Type    string `json:"type"`
		Code    string `json:"code,omitempty"`
		Message string `json:"message"`
	}
)
