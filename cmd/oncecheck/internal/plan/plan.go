// Package plan is the table of all checks: what each asserts, how strongly, which text says so, and what a server that
// fails it does to a customer. It has no code that asks; package check has one function for each row.
//
// The ids are stable: users keep them in files of known failures.
package plan

import "slices"

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

// Check is one row of the table.
type Check struct {
	ID    string
	Level Level

	Title    string      // what holds if the check holds
	Asserts  string      // what is sent, and what is compared
	Texts    []Reference // which texts say so; empty if correctness alone demands it
	Customer string      // what a failure means for a customer or a client
	Needs    []Need      // what the check cannot be asked without
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
)

// Need is something that only the user can give.
type Need string

const (
	Effects  Need = "effects"   // a way to see how often something happened: -effects, or ids in the responses
	Counted  Need = "counted"   // -effects: what happened is counted, also if nobody saw the response
	Slow     Need = "slow"      // -slow
	User2    Need = "user2"     // -H2
	Also     Need = "also"      // -also
	Restart  Need = "restart"   // -restart
	Store    Need = "store"     // -store-down and -store-up
	Fail     Need = "fail"      // -fail
	OtherURL Need = "other-url" // -other-url
)

// Explain returns how to give what is needed.
func (n Need) Explain() string {
	switch n {
	case Effects:
		return "give -effects: the responses have no id by which a second run could be told from a replay"
	case Counted:
		return "give -effects: ids in responses do not tell of a run whose response nobody has seen"
	case Slow:
		return "give -slow, a query that makes the server take about a second"
	case User2:
		return "give -H2, the headers of a second user"
	case Also:
		return "give -also, the URL of a second instance of the same service"
	case Restart:
		return "give -restart, a command that kills the server and starts it again"
	case Store:
		return "give -store-down and -store-up, commands that stop and start what the server stores keys in"
	case Fail:
		return "give -fail, a query that makes the server fail with a 5xx or break the connection"
	case OtherURL:
		return "give -other-url, another route of the service that takes the same request"
	}
	return string(n)
}

// All returns the table, in the order in which the checks run.
func All() []Check {
	return slices.Concat(key(), keyRules(), once(), onceLost(), replay(), replayHeaders(), mismatch(), scope(), inflight(), failures(), store(), crash(), browser(), load())
}

// Find returns the check with the id.
func Find(id string) (Check, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Check) bool { return c.ID == id })
	if i < 0 {
		return Check{}, false
	}
	return all[i], true
}
