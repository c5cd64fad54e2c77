package check

import (
	"slices"
	"strings"
)

// Level is how strongly a check is meant.
type Level string

const (
	// Must is a rule whose breach costs a customer money or shows them somebody else's data, or that breaks a MUST of a
	// text. A failure always counts.
	Must Level = "MUST"
	// Should is a rule that a text recommends, or that clients rely on. A failure counts with -strict.
	Should Level = "SHOULD"
	// May is something that a text allows. A failure never counts: it says what clients cannot use here.
	May Level = "MAY"
	// Advice has no text. A failure never counts.
	Advice Level = "ADVICE"
)

// Check is one row of the table. The ids are stable: users keep them in files of known failures.
type Check struct {
	ID      string   `json:"id"`
	Aliases []string `json:"-"` // the ids of earlier versions that are part of this check now
	Level   Level    `json:"level"`

	Title    string      `json:"title"` // what holds if the check holds
	Asserts  string      `json:"-"`     // what is sent, and what is compared
	Texts    []Reference `json:"-"`     // which texts say so; empty if correctness alone demands it
	Customer string      `json:"-"`     // what a failure means for a customer or a client
	Needs    []Need      `json:"-"`     // what the check cannot be asked without
	Profiles []string    `json:"-"`     // the only ones that have it asked, see -profile; nil: it is always asked

	ask func(*T)
}

// Is reports whether the pattern is an id of the check, or its beginning if it ends in *.
func (c Check) Is(pattern string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return slices.ContainsFunc(append(c.Aliases, c.ID), func(id string) bool {
		return pattern == id || isPrefix && strings.HasPrefix(id, prefix)
	})
}

// Reference names a place in a text.
type Reference string

const (
	Draft21 Reference = "draft-ietf-httpapi-idempotency-key-header-07, section 2.1 (Syntax)"
	Draft22 Reference = "draft-ietf-httpapi-idempotency-key-header-07, section 2.2 (Uniqueness of Idempotency Key)"
	Draft24 Reference = "draft-ietf-httpapi-idempotency-key-header-07, section 2.4 (Idempotency Fingerprint)"
	Draft26 Reference = "draft-ietf-httpapi-idempotency-key-header-07, section 2.6 (Idempotency Enforcement Scenarios)"
	Draft27 Reference = "draft-ietf-httpapi-idempotency-key-header-07, section 2.7 (Error Scenarios)"
	Draft5  Reference = "draft-ietf-httpapi-idempotency-key-header-07, section 5 (Security Considerations)"

	FieldNames     Reference = "RFC 9110, section 5.1 (Field Names)"
	Expect         Reference = "RFC 9110, section 10.1.1 (Expect)"
	DateField      Reference = "RFC 9110, section 6.6.1 (Date)"
	SafeMethods    Reference = "RFC 9110, section 9.2.1 (Safe Methods)"
	HeadMethod     Reference = "RFC 9110, section 9.3.2 (HEAD)"
	LocationField  Reference = "RFC 9110, section 10.2.2 (Location)"
	RetryAfter     Reference = "RFC 9110, section 10.2.3 (Retry-After)"
	Encoding       Reference = "RFC 9110, section 8.4 (Content-Encoding)"
	RetryRequests  Reference = "RFC 9110, section 9.2.2 (Idempotent Methods)"
	MessageBody    Reference = "RFC 9112, section 6 (Message Body)"
	Incomplete     Reference = "RFC 9112, section 8 (Handling Incomplete Messages)"
	SFStrings      Reference = "RFC 9651, section 3.3.3 (Strings)"
	SFParse        Reference = "RFC 9651, section 4.2 (Parsing Structured Fields)"
	SFParameters   Reference = "RFC 9651, section 3.1.2 (Parameters)"
	SFErrors       Reference = "RFC 9651, section 1.1 (Intentionally Strict Processing)"
	ProblemDetails Reference = "RFC 9457, section 3 (The Problem Details JSON Object)"
	AgeField       Reference = "RFC 9111, section 5.1 (Age)"
	Caching        Reference = "RFC 9111, section 5.2.2.5 (no-store)"
	CORS           Reference = "WHATWG Fetch, section 3.2 (HTTP CORS protocol)"
	Stripe         Reference = "Stripe, API reference, Idempotent requests"
	ACP6           Reference = "Agentic Commerce Protocol 2026-04-17, RFC Agentic Checkout, section 6 (idempotency)"
	ACPBody        Reference = "Agentic Commerce Protocol 2026-04-17, RFC Agentic Checkout, section 6.2 (what the same request is)"
	ACPErrors      Reference = "Agentic Commerce Protocol 2026-04-17, RFC Agentic Checkout, section 6.5 (errors of the server)"
	UCPPayload     Reference = "Universal Commerce Protocol 2026-08, Message Signatures, Replay Protection (Payload Matching)"
)

// Need is something that only the user can give, and says how.
type Need string

const (
	// Effects is a way to see how often something happened: -effects, or ids in the responses.
	Effects Need = "give -effects: the responses have no id by which a second run could be told from a replay"
	// Counted is -effects: what happened is counted, also if nobody saw the response.
	Counted  Need = "give -effects: ids in responses do not tell of a run whose response nobody has seen"
	Slow     Need = "give -slow, a query that makes the server take about a second"
	User2    Need = "give -H2, the headers of a second user"
	Also     Need = "give -also, the URL of a second instance of the same service"
	Restart  Need = "give -restart, a command that kills the server and starts it again"
	Store    Need = "give -store-down and -store-up, commands that stop and start what the server stores keys in"
	Fail     Need = "give -fail, a query that makes the server fail with a 5xx or break the connection"
	Samples  Need = "give -sample, a query whose response is of another kind"
	OtherURL Need = "give -other-url, another route of the service that takes the same request"
)

// All returns the table, in the order in which the checks run.
func All() []Check {
	return slices.Concat(keyChecks, onceChecks, replayChecks, mismatchChecks, scopeChecks, inflightChecks, failuresChecks, storeChecks, crashChecks, otherChecks, profileChecks)
}

// Find returns the check with the id, which may be one of an earlier version.
func Find(id string) (Check, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Check) bool { return c.Is(id) })
	if i < 0 || strings.HasSuffix(id, "*") {
		return Check{}, false
	}
	return all[i], true
}
